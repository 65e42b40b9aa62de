package guides_test

import (
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// statements returns those of a block of the guide, which is found by its first
// line.
func statements(t *testing.T, first string) []string {
	t.Helper()
	guide, err := os.ReadFile("../../.github/GUIDES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, there := strings.Cut(string(guide), "\n```sql\n-- "+first+"\n")
	text, _, ended := strings.Cut(text, ";\n```\n")
	if !there || !ended {
		t.Fatalf("the guide has no SQL that begins with %q", first)
	}
	return strings.Split(text, ";")
}

// What the guide removes is everything: nothing is left, and Migrate begins
// anew.
func TestLeaveAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		open    func(t *testing.T) *sql.DB
		keys    func(*sql.DB, keysql.Options) *keysql.Store
		replies func(*sql.DB, idemsql.Options) *idemsql.Store
		left    string // asks for the names of all that is in the test's database
	}{
		{
			"Postgres", func(t *testing.T) *sql.DB { return stdlib.OpenDB(*pgtest.Schema(t)) },
			keysql.Postgres, idemsql.Postgres,
			`SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace
			UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
			UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = current_schema()::regnamespace`,
		},
		{
			"MariaDB, MySQL", func(t *testing.T) *sql.DB { return opened(t, "mysql", sqltest.MariaDB(t).FormatDSN()) },
			keysql.MySQL, idemsql.MySQL,
			`SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()
			UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()
			UNION ALL SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()`,
		},
		{
			"SQLite", func(t *testing.T) *sql.DB { return opened(t, "sqlite", "file:"+sqltest.SQLite(t)) },
			keysql.SQLite, idemsql.SQLite, "SELECT name FROM sqlite_schema",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := test.open(t)
			defer db.Close()
			keys, replies := test.keys(db, keysql.Options{}), test.replies(db, idemsql.Options{})
			before := names(t, db, test.left)
			if err := errors.Join(keys.Migrate(t.Context()), replies.Migrate(t.Context())); err != nil {
				t.Fatal(err)
			}
			issue(issuing.New(keys, issuing.Options{Service: service}), "acme", "parcels:read")
			for _, statement := range statements(t, test.name) {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			if after := names(t, db, test.left); !slices.Equal(after, before) {
				t.Errorf("left are %q, before there were %q", after, before)
			}
			if err := errors.Join(
				keys.Migrate(t.Context()), replies.Migrate(t.Context()),
				keys.Check(t.Context()), replies.Check(t.Context()),
			); err != nil {
				t.Error(err)
			}
		})
	}
}

func opened(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// names returns the first column of a query, sorted.
func names(t *testing.T, db *sql.DB, query string, args ...any) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// The guide's query finds a key by its token, as long as it is live.
func TestLeaveAgainWhoCalls(t *testing.T) {
	db := stdlib.OpenDB(*pgtest.Schema(t))
	defer db.Close()
	keys := keysql.Postgres(db, keysql.Options{})
	if err := keys.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	issuer := issuing.New(keys, issuing.Options{Service: service})
	secret, key, err := issuer.Issue(t.Context(), keystore.Key{
		Organization: "acme", Environment: keystore.Sandbox, Name: "one", Scopes: []scope.Name{"parcels:read"},
	})
	if err != nil {
		t.Fatal(err)
	}
	query := "SELECT organization || ' ' || environment FROM (" + statements(t, "Postgres, who calls")[0] + ") AS caller"
	if got := names(t, db, query, secret.Reveal()); !slices.Equal(got, []string{"acme sandbox"}) {
		t.Errorf("a live key is of %q", got)
	}
	if got := names(t, db, query, secret.Reveal()+"x"); got != nil {
		t.Errorf("another token is of %q", got)
	}
	// The row of a child does not say what is left of its parent.
	child, _, err := issuer.Delegate(t.Context(), keystore.Key{Organization: "acme", Parent: key.ID,
		ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, db, query, child.Reveal()); got != nil {
		t.Errorf("a child is of %q", got)
	}
	for _, end := range []string{"suspended = true", "suspended = false, expires_at = now()",
		"expires_at = NULL, revoked_at = now()"} {
		if _, err := db.ExecContext(t.Context(), "UPDATE sallyport_keys SET "+end+" WHERE id = $1", key.ID); err != nil {
			t.Fatal(err)
		}
		if got := names(t, db, query, secret.Reveal()); got != nil {
			t.Errorf("after %s the key is of %q", end, got)
		}
	}
}
