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
		"sqlite": {keysql.SQLite(db, keysql.Options{}),
			[]string{"8611dec6f05af043", "9175191dbdb80c81", "74e71e8b13850b2b", "8676d54d7ed26d82",
				"c2b667c0ad8069c6", "47508d78dd426463", "e1718802d5ed01ac", "8a58bb3e0f3f837b", "4feb74d843e644ba"}},
		"postgres": {keysql.Postgres(db, keysql.Options{}),
			[]string{"d4b1a70981360d2a", "40b7e24dd17c84fc", "bf7fe91cb48849b2", "b33f45fc9833ee67",
				"0f8222daddeba70d", "14d2ef889e953a8e", "abc88c5b5e44a682", "dd79975021887d13", "a4fd4667e8825a56"}},
		"mysql": {keysql.MySQL(db, keysql.Options{}),
			[]string{"38b026f7923ccf0e", "f006c804d510a9d1", "d8f3fac8108d0a48",
				"27d3ec265d71398e", "c5b33b8db104c11e", "49112e5ef5775fea", "ba99143f42992ff4"}},
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
