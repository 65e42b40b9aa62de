package idemsql_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// What has been released is in databases: a changed text would leave those as
// they are, and their version would say otherwise.
func TestSchemaIsFrozen(t *testing.T) {
	db := new(sql.DB)
	for name, test := range map[string]struct {
		store *idemsql.Store
		want  []string // SHA-256 of each text, its first 8 bytes
	}{
		"sqlite":   {idemsql.SQLite(db, idemsql.Options{}), []string{"97cdb7f2399abb60", "ffdae32072aaf353"}},
		"postgres": {idemsql.Postgres(db, idemsql.Options{}), []string{"857c55cff3848ddd", "989d90e47b88f412"}},
		"mysql":    {idemsql.MySQL(db, idemsql.Options{}), []string{"d34889376d2117a1", "25d20b40a3865a36"}},
	} {
		for i, step := range test.store.Schema() {
			got := fmt.Sprintf("%.8x", sha256.Sum256([]byte(step)))
			switch {
			case i >= len(test.want):
				t.Errorf("%s: step %d is new: add %s to this test when it is released", name, i+1, got)
			case got != test.want[i]:
				t.Errorf("%s: the text of step %d has changed (%s): restore it, and add a new step for what is to change",
					name, i+1, got)
			}
		}
		if n := len(test.store.Schema()); n < len(test.want) {
			t.Errorf("%s: there are %d steps and were %d: no step may go", name, n, len(test.want))
		}
	}
}
