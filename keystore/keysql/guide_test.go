package keysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
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

// What the operator's guide says of a leaked token leads to its key and revokes
// it, and no other, and caches learn of it.
func TestTheGuideRevokesALeakedKey(t *testing.T) {
	names := map[string]string{"postgres": "-- Postgres\n", "mariadb": "-- MariaDB, MySQL\n", "sqlite": "-- SQLite\n"}
	inEach(t, func(t *testing.T, d database) {
		db, store := d.open(t), d.store(t)
		issuer := keystore.NewIssuer(store, keystore.IssuerOptions{})
		issue := func() (string, *keystore.Key) {
			secret, k, err := issuer.Issue(t.Context(), keystore.Grant{
				Organization: "acme", Environment: keystore.Production,
				Scopes: []scope.Name{scope.TasksRead},
			})
			if err != nil {
				t.Fatal(err)
			}
			return secret.Reveal(), k
		}
		token, leaked := issue()
		_, other := issue()
		_, position := changes(t, store, "")

		sh := exec.Command("sh", "-c", blocks(t, "A leaked key", "sh")[0])
		sh.Stdin = strings.NewReader(token + "\n")
		digest, err := sh.Output()
		if digest = bytes.TrimSpace(digest); err != nil || string(digest) != fmt.Sprintf("%x", leaked.Digest) {
			t.Fatalf("the digest is %s, %v, want %x", digest, err, leaked.Digest)
		}
		code := slices.DeleteFunc(blocks(t, "A leaked key", "sql"),
			func(b string) bool { return !strings.HasPrefix(b, names[d.name]) })
		if len(code) != 1 {
			t.Fatalf("got %d blocks for %s, want one", len(code), d.name)
		}
		statements := strings.Split(strings.ReplaceAll(strings.TrimSuffix(code[0], ";"), "DIGEST", string(digest)),
			";\n")
		if id := firstColumn(t, db, statements[0]); id != leaked.ID {
			t.Errorf("the guide's query finds %q, want %q", id, leaked.ID)
		}
		execute(t, db, statements[1])
		for _, row := range []struct {
			key  *keystore.Key
			want error
		}{{leaked, keystore.ErrRevoked}, {other, nil}} {
			k, err := store.Find(t.Context(), "acme", row.key.ID)
			if err != nil || !errors.Is(k.Refused(), row.want) {
				t.Errorf("%s: got %v %v, want %v", row.key.ID, k.Refused(), err, row.want)
			}
		}
		if changed, _ := changes(t, store, position); !slices.Contains(changed, leaked.Digest) {
			t.Error("the feed does not name the key")
		}
		revoked, err := store.Find(t.Context(), "acme", leaked.ID)
		if err != nil {
			t.Fatal(err)
		}
		if late := revoked.RevokedAt.Sub(leaked.CreatedAt).Abs(); late > 24*time.Hour {
			t.Errorf("revoked %v apart from now", late)
		}
		execute(t, db, statements[1])
		if again, err := store.Find(context.Background(), "acme", leaked.ID); err != nil ||
			!again.RevokedAt.Equal(revoked.RevokedAt) {
			t.Errorf("run twice: revoked at %v, %v, want as before, %v", again.RevokedAt, err, revoked.RevokedAt)
		}
	})
}

// The other queries of the guide run.
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
