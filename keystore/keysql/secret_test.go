package keysql_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// used issues keys, rotates, revokes and uses them, and returns the tokens.
func used(t testing.TB, s *keysql.Store) (tokens []string) {
	t.Helper()
	ctx := t.Context()
	issuer := keystore.NewIssuer(s, keystore.IssuerOptions{})
	for _, environment := range []keystore.Environment{keystore.Production, keystore.Sandbox} {
		secret, k, err := issuer.Issue(ctx, keystore.Grant{
			Organization: "acme", Actor: "user_1", Name: "Nightly import", Environment: environment, Scopes: []scope.Name{scope.TasksRead}, IssueToken: "nonce" + string(environment),
		})
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := issuer.Rotate(ctx, "acme", k.ID, "user_1", time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := issuer.Revoke(ctx, "acme", k.ID); err != nil {
			t.Fatal(err)
		}
		if err := s.Touch(ctx, uses([]*keystore.Key{k}, time.Now())); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, secret.Reveal(), next.Reveal())
	}
	return tokens
}

// wantNoPart reports each stretch of 8 characters of a token's secret part
// that the dump has.
func wantNoPart(t testing.TB, where string, dump []byte, tokens []string) {
	t.Helper()
	for _, token := range tokens {
		secret := token[len("svc_live_"):]
		for i := range len(secret) - 7 {
			if bytes.Contains(dump, []byte(secret[i:i+8])) {
				t.Errorf("%s holds %q of the token %s", where, secret[i:i+8], token)
			}
		}
		if !bytes.Contains(dump, []byte(token[len(token)-4:])) {
			t.Errorf("%s does not even hold the hint of a key: this test looks in the wrong place", where)
		}
	}
}

func TestNoSecretInColumns(t *testing.T) {
	tables := map[string]string{
		"mariadb":  "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
		"sqlite":   "SELECT name FROM sqlite_schema WHERE type = 'table'",
		"postgres": "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'v', 'm') AND relnamespace = current_schema()::regnamespace",
	}
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		tokens := used(t, d.wrap(db, keysql.Options{}))
		var dump bytes.Buffer
		for _, name := range values(t, db, tables[d.name]) {
			for _, value := range values(t, db, "SELECT * FROM "+string(name)) {
				fmt.Fprintf(&dump, "%s %x\n", value, value)
			}
		}
		wantNoPart(t, "a column", dump.Bytes(), tokens)
	})
}

// values returns every value of every row.
func values(t testing.TB, db *sql.DB, query string) (all [][]byte) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([][]byte, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestNoSecretInFile(t *testing.T) {
	d := sqliteFile(t)
	db := d.open(t)
	tokens := used(t, d.wrap(db, keysql.Options{}))
	var file string
	if err := db.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(file + "*")
	if err != nil {
		t.Fatal(err)
	}
	var dump []byte
	for _, part := range parts {
		content, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		dump = append(dump, content...)
	}
	wantNoPart(t, fmt.Sprint(parts), dump, tokens)
}
