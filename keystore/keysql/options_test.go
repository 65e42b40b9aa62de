package keysql_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, keysql.Options) *keysql.Store{"Postgres": keysql.Postgres,
		"SQLite": keysql.SQLite, "MySQL": keysql.MySQL} {
		if !panics(func() { store(nil, keysql.Options{}) }) {
			t.Errorf("%s(nil) returned, want a panic where the mistake is", name)
		}
	}
}

func TestPrefixIsValidated(t *testing.T) {
	for valid, prefixes := range map[bool][]string{
		true:  {"", "a", "_a1_", strings.Repeat("a", 40)},
		false: {strings.Repeat("a", 41), "1a", "A", "a-b", "a.b", "a b", "a\"", "ä"},
	} {
		for _, prefix := range prefixes {
			if panics(func() { keysql.Postgres(new(sql.DB), keysql.Options{Prefix: prefix}) }) == valid {
				t.Errorf("prefix %q: got a panic %t, want valid %t", prefix, valid, valid)
			}
		}
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
