package keysql_test

import (
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// blocks returns the code of a language in a section of the operator's guide.
func blocks(t *testing.T, section, language string) (all []string) {
	t.Helper()
	guide, err := os.ReadFile("../../.github/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "\n### "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text, _, _ = strings.Cut(text, "\n### ")
	for {
		_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
		if !ok {
			return all
		}
		code, rest, _ := strings.Cut(rest, "\n```\n")
		all, text = append(all, code), rest
	}
}

// forDatabase returns the SQL of a section of the guide for d, without the last
// semicolon.
func (d database) forDatabase(t *testing.T, section string) string {
	t.Helper()
	names := map[string]string{"postgres": "-- Postgres\n", "mariadb": "-- MariaDB, MySQL\n", "sqlite": "-- SQLite\n"}
	code := slices.DeleteFunc(blocks(t, section, "sql"),
		func(b string) bool { return !strings.HasPrefix(b, names[d.name]) })
	if len(code) != 1 {
		t.Fatalf("got %d blocks for %s, want one", len(code), d.name)
	}
	return strings.TrimSuffix(code[0], ";")
}

// The guide's query finds the keys that expire within two weeks.
func TestTheGuideFindsKeysThatExpire(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		const day = 24 * time.Hour
		var want string
		for _, expiry := range []time.Duration{-day, 13 * day, 15 * day, 13 * day} {
			k := newKey("acme")
			k.ExpiresAt = time.Now().Add(expiry)
			if expiry == 13*day && want != "" {
				k.RevokedAt = time.Now().Add(-day)
			} else if expiry == 13*day {
				want = k.ID
			}
			if err := store.Insert(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, id := range values(t, d.open(t), "SELECT id FROM ("+
			d.forDatabase(t, "Keys that expire in all organizations")+") AS k") {
			got = append(got, string(id))
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("the guide's query finds %v, want %s", got, want)
		}
	})
}

// The queries of the guide run.
func TestTheGuidesQueries(t *testing.T) {
	d := postgres(t)
	db := d.tool(t)
	if err := idemsql.Postgres(db, idemsql.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{"Postgres fails over": "false", "A disk is full": "sallyport_"} {
		for _, code := range blocks(t, section, "sql") {
			for statement := range strings.SplitSeq(strings.TrimSuffix(code, ";"), ";\n") {
				if got := firstColumn(t, db, statement); !strings.HasPrefix(got, want) && got != "0" {
					t.Errorf("%s: got %q, want %s", section, got, want)
				}
			}
		}
	}
}

// firstColumn returns that of the first row.
func firstColumn(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		t.Fatalf("%s: no row, %v, %v", query, err, rows.Err())
	}
	values := make([]any, len(columns))
	first := new(string)
	values[0] = first
	for i := range values[1:] {
		values[i+1] = new(any)
	}
	if err := rows.Scan(values...); err != nil {
		t.Fatal(err)
	}
	return *first
}
