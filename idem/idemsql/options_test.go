package idemsql_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

func TestMistakesPanic(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, idemsql.Options) *idemsql.Store{
		"Postgres": idemsql.Postgres, "SQLite": idemsql.SQLite, "MySQL": idemsql.MySQL,
	} {
		for _, tt := range []struct {
			db     *sql.DB
			prefix string
			panics bool
		}{
			{nil, "", true},
			{new(sql.DB), "", false},
			{new(sql.DB), "app_1_", false},
			{new(sql.DB), "1app_", true},
			{new(sql.DB), "app; DROP TABLE parcels; --", true},
			{new(sql.DB), strings.Repeat("a", 40), false},
			{new(sql.DB), strings.Repeat("a", 41), true},
		} {
			func() {
				defer func() {
					if panicked := recover() != nil; panicked != tt.panics {
						t.Errorf("%s with a database %t and the prefix %q: panicked %t, want %t",
							name, tt.db != nil, tt.prefix, panicked, tt.panics)
					}
				}()
				store(tt.db, idemsql.Options{Prefix: tt.prefix})
			}()
		}
	}
}

// TestDefaultPrefix: without an option the names begin as the documents say.
func TestDefaultPrefix(t *testing.T) {
	schema := strings.Join(idemsql.Postgres(new(sql.DB), idemsql.Options{}).Schema(), "\n")
	if !strings.Contains(schema, "CREATE TABLE sallyport_idem (") {
		t.Errorf("got the schema %s, want the table sallyport_idem", schema)
	}
}
