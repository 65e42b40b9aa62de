package keysql_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, keysql.Options) *keysql.Store{"Postgres": keysql.Postgres,
		"SQLite": keysql.SQLite, "MySQL": keysql.MySQL} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s(nil) returned, want a panic where the mistake is", name)
				}
			}()
			store(nil, keysql.Options{})
		}()
	}
}

func TestPrefixIsValidated(t *testing.T) {
	for prefix, valid := range map[string]bool{
		"":                      true,
		"a":                     true,
		"_a1_":                  true,
		strings.Repeat("a", 40): true,
		strings.Repeat("a", 41): false,
		"1a":                    false,
		"A":                     false,
		"a-b":                   false,
		"a.b":                   false,
		"a b":                   false,
		"a\"":                   false,
		"ä":                     false,
	} {
		func() {
			defer func() {
				if p := recover(); (p == nil) != valid {
					t.Errorf("prefix %q: got the panic %v, want valid %t", prefix, p, valid)
				}
			}()
			keysql.Postgres(new(sql.DB), keysql.Options{Prefix: prefix})
		}()
	}
}

// TestOptions: each option has an effect, and without one the names begin as
// the documents say.
func TestOptions(t *testing.T) {
	schema := func(set func(*keysql.Options)) string {
		var o keysql.Options
		set(&o)
		return strings.Join(keysql.Postgres(new(sql.DB), o).Schema(), "\n")
	}
	optiontest.Every(t, schema, map[string]func(*keysql.Options){
		"Prefix": func(o *keysql.Options) { o.Prefix = "acme_" },
	})
	if got := schema(func(*keysql.Options) {}); !strings.Contains(got, "CREATE TABLE sallyport_keys (") {
		t.Errorf("got the schema %s, want the table sallyport_keys", got)
	}
}
