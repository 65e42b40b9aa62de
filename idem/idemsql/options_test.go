package idemsql_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, idemsql.Options) *idemsql.Store{
		"Postgres": idemsql.Postgres, "SQLite": idemsql.SQLite, "MySQL": idemsql.MySQL,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s(nil) returned, want a panic where the mistake is", name)
				}
			}()
			store(nil, idemsql.Options{})
		}()
	}
}

// TestDefaultPrefix: without an option the names begin as the documents say.
func TestDefaultPrefix(t *testing.T) {
	schema := strings.Join(idemsql.Postgres(new(sql.DB), idemsql.Options{}).Schema(), "\n")
	if !strings.Contains(schema, "CREATE TABLE sallyport_idem (") {
		t.Errorf("got the schema %s, want the table sallyport_idem", schema)
	}
}
