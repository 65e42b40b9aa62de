package keysql_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// What has been released is in databases: a changed text would leave those as
// they are, and their version would say otherwise.
func TestSchemaIsFrozen(t *testing.T) {
	db := new(sql.DB)
	for name, test := range map[string]struct {
		store *keysql.Store
		want  []string // SHA-256 of each text, its first 8 bytes
	}{
		"sqlite":   {keysql.SQLite(db, keysql.Options{}), []string{"13091e38242da545", "79742b7ce8749d12"}},
		"postgres": {keysql.Postgres(db, keysql.Options{}), []string{"79f1dda2b8d39b02", "769cf7244249b029"}},
		"mysql":    {keysql.MySQL(db, keysql.Options{}), []string{"031dcd3b1c13b9a8", "050d3fbaa725fa66"}},
	} {
		for i, step := range test.store.Schema() {
			got := fmt.Sprintf("%.8x", sha256.Sum256([]byte(step)))
			switch {
			case i >= len(test.want):
				t.Errorf("%s: step %d is new: add %s to this test when it is released", name, i+1, got)
			case got != test.want[i]:
				t.Errorf("%s: the text of step %d has changed (%s): restore it, and add a new step for what is to "+
					"change", name, i+1, got)
			}
		}
		if n := len(test.store.Schema()); n < len(test.want) {
			t.Errorf("%s: there are %d steps and were %d: no step may go", name, n, len(test.want))
		}
	}
}
