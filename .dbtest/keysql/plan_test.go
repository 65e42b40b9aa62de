package keysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// Where there are thousands of keys and children, a statement reads those that it
// is for, and locks no others. Postgres and MariaDB count them; SQLite says which
// part of an index it reads.
func TestRowsRead(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		db.SetMaxOpenConns(1) // its session counts
		store := d.wrap(db, keysql.Options{})
		var asked string
		if d.name == "sqlite" {
			store = d.wrap(d.breaking(t, func(what string) error {
				if strings.HasPrefix(what, "SELECT") {
					asked = what
				}
				return nil
			}), keysql.Options{})
		}
		organizations := []string{"acme", "b", "c", "d", "other", "z"}
		for _, o := range organizations {
			seed(t, d, o, 1000)
		}
		words := map[string]*strings.Replacer{
			"postgres": strings.NewReplacer("$digest", "sha256(id::bytea)", "$ahead", "now() + interval '1 hour'",
				"$ago", "now() - interval '1 hour'"),
			"mariadb": strings.NewReplacer("$digest", "UNHEX(SHA2(id, 256))",
				"$ahead", "(UNIX_TIMESTAMP() + 3600) * 1000000", "$ago", "(UNIX_TIMESTAMP() - 3600) * 1000000"),
			"sqlite": strings.NewReplacer("$digest", "randomblob(32)",
				"$ahead", "(unixepoch() + 3600) * 1000000", "$ago", "(unixepoch() - 3600) * 1000000"),
		}[d.name]
		for _, statement := range []string{`
			INSERT INTO sallyport_keys (id, digest, organization, environment, name, hint, scopes, created_at,
				created_by, suspended, issue_token, rotated_from, version, parent, root, expires_at)
			SELECT CONCAT('child_', id), $digest, organization, environment, name, hint, scopes, created_at,
				created_by, suspended, '', CONCAT('child_', id), 1, 'acme_key_1', 'acme_key_1',
				CASE WHEN SUBSTR(id, 10) > '500' THEN $ahead ELSE $ago END
			FROM sallyport_keys WHERE organization = 'acme'`,
			"UPDATE sallyport_keys SET expires_at = $ahead WHERE parent = '' AND (id LIKE '%00' OR organization = 'z')",
			"UPDATE sallyport_keys SET expires_at = $ago WHERE parent = '' AND id LIKE '%5'",
			"UPDATE sallyport_keys SET expires_at = $ago WHERE organization = 'c' AND id < 'c_key_55'",
			"UPDATE sallyport_keys SET revoked_at = $ago WHERE organization = 'c' AND id > 'c_key_6'",
			`INSERT INTO sallyport_keys_audit (id, organization, key_id, at, act, actor, reason, changes)
			SELECT CONCAT('act_', id), organization, id, $ahead, 'issue', 'ada', '', '[]' FROM sallyport_keys`,
		} {
			execute(t, db, words.Replace(statement))
		}
		switch d.name {
		case "mariadb":
			execute(t, db, "ANALYZE TABLE sallyport_keys, sallyport_keys_audit")
		case "postgres":
			eventually(t, "VACUUM leaves rows that another transaction may see", func() (clean bool) {
				execute(t, db, "VACUUM (ANALYZE, INDEX_CLEANUP ON) sallyport_keys, sallyport_keys_audit")
				err := db.QueryRowContext(t.Context(), "SELECT relallvisible = relpages FROM pg_class "+
					"WHERE oid = 'sallyport_keys'::regclass").Scan(&clean)
				if err != nil {
					t.Fatal(err)
				}
				return clean
			})
		}
		list := func(organization string, q issuing.Query) func() error {
			return func() error {
				page, err := store.List(t.Context(), organization, q)
				if err == nil && len(page.Keys) != 50 {
					t.Errorf("got %d keys, want 50", len(page.Keys))
				}
				return err
			}
		}
		audit := func(organization string, q issuing.AuditQuery, want int) func() error {
			return func() error {
				q.Limit = 50
				page, err := store.Audit(t.Context(), organization, q)
				if err == nil && (len(page) != want || page[0].KeyName == "") {
					t.Errorf("got the entries %v, want %d with the names of their keys", page, want)
				}
				return err
			}
		}
		find := func(organization, id string) *keystore.Key {
			k, err := store.Find(t.Context(), organization, id)
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		middle, first := find("b", "b_key_500"), find("acme", "acme_key_100")
		all := issuing.Query{AllOrganizations: true}
		later, soon := all, issuing.Query{AllOrganizations: true, Status: keystore.Active,
			ExpiresBefore: time.Now().AddDate(0, 0, 1)}
		next := soon
		later.After, next.After = middle, first
		since := present(t, store)
		const children = "children (parent=? AND organization=?)"
		for what, c := range map[string]struct {
			do   func() error
			plan string // of SQLite
		}{
			"a page":                     {list("acme", issuing.Query{}), children},
			"sorted, a page by last use": {list("acme", issuing.Query{Order: issuing.ByLastUse}), children},
			"sorted, a later page by last use": {list("acme", issuing.Query{Order: issuing.ByLastUse, After: first}),
				children},
			"sorted, a page by expiry":    {list("acme", issuing.Query{Order: issuing.ByExpiry}), children},
			"a page of who made it":       {list("acme", issuing.Query{CreatedBy: "user_1"}), children},
			"a page of children":          {list("acme", issuing.Query{Parent: "acme_key_1"}), children},
			"a page of all organizations": {list("", all), "children (parent=?)"},
			"a later page of all organizations": {list("", later),
				"children (parent=? AND (organization,created_at,id)<(?,?,?))"},
			"the first that expire": {list("", soon), "expires (parent=? AND expires_at>? AND expires_at<?)"},
			"the next that expire": {list("", next),
				"expires (parent=? AND (expires_at,id)>(?,?) AND expires_at<?)"},
			"a page of the audit": {audit("b", issuing.AuditQuery{}, 50), "audit_list (organization=?)"},
			"the audit of a key": {audit("b", issuing.AuditQuery{Key: "b_key_7"}, 1),
				"audit_key (organization=? AND key_id=?)"},
			"the audit of some days": {audit("b", issuing.AuditQuery{Since: time.Unix(1, 0), After: "act_b_key_500"}, 50),
				"audit_list (organization=? AND id>? AND id<?)"},
			"the audit of all": {audit("", issuing.AuditQuery{AllOrganizations: true, After: "act_b_key_500"}, 50),
				"audit_1 (id<?)"},
			"an insert with too many children": {func() error {
				k := newKey("acme")
				k.Parent, k.Ancestors = "acme_key_1", []*keystore.Key{{ID: "acme_key_1"}}
				if err := store.Insert(t.Context(), k, newEntry(k), 50); !errors.Is(err, issuing.ErrTooManyKeys) {
					t.Errorf("got %v, want ErrTooManyKeys", err)
				}
				return nil
			}, ""},
			"an insert beside keys that have ended": {func() error {
				k := newKey("c") // which has 56 others
				return store.Insert(t.Context(), k, newEntry(k), 100)
			}, "count (organization=? AND expires_at>?)"},
			"a look-up": {func() error {
				_, err := store.Lookup(t.Context(), seeded("b", 500))
				return err
			}, ""},
			"a use":     {func() error { return store.AddUses(t.Context(), needed(middle)) }, ""},
			"an update": {func() error { return store.Update(t.Context(), first, newEntry(first)) }, ""},
			"the feed":  {func() error { _, _, err := store.Changes(t.Context(), since); return err }, ""},
			"a sweep": {func() error {
				_, err := store.SweepAudit(t.Context(), time.Now().Add(-time.Hour))
				return err
			}, ""},
		} {
			most, whole := 200, "on"
			if strings.HasPrefix(what, "sorted") { // all of the organization, none of the others
				most, whole = 1200, "off"
			} else if what == "a use" {
				whole = "off"
			}
			if d.name == "postgres" { // which would read so small a table whole
				execute(t, db, "SET enable_seqscan = "+whole)
			}
			before := rowsRead(t, d, db)
			if err := c.do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if read := rowsRead(t, d, db) - before; read > most {
				t.Errorf("%s reads %d rows, want at most %d", what, read, most)
			}
			if d.name == "sqlite" && c.plan != "" {
				if plan := planOf(t, db, asked); !strings.Contains(plan, "sallyport_keys_"+c.plan) {
					t.Errorf("%s reads %s, want %s", what, plan, c.plan)
				}
			}
		}
		if d.name == "postgres" { // rows do not tell what of an index is passed over
			var first string
			if err := db.QueryRowContext(t.Context(), `EXPLAIN SELECT FROM sallyport_keys
				WHERE parent = '' AND expires_at > now() + interval '9 days' ORDER BY expires_at, id`).Scan(&first); err != nil {
				t.Fatal(err)
			}
			var cost float64
			if _, err := fmt.Sscanf(first[strings.Index(first, ".."):], "..%f", &cost); err != nil || cost > 20 {
				t.Errorf("behind all that expire: got %s, want a cost of at most 20", first)
			}
		}
	})
}

// rowsRead returns how many rows the session has read so far, 0 in SQLite.
func rowsRead(t *testing.T, d database, db *sql.DB) (read int) {
	t.Helper()
	query := map[string]string{
		"mariadb": "SELECT SUM(variable_value) FROM information_schema.session_status " +
			"WHERE variable_name LIKE 'HANDLER_READ%'",
		"postgres": "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = current_schema()) + " +
			"(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = current_schema())",
		"sqlite": "SELECT 0",
	}[d.name]
	if d.name == "postgres" {
		execute(t, db, "SELECT pg_stat_force_next_flush()")
	}
	if err := db.QueryRowContext(t.Context(), query).Scan(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

// planOf returns how SQLite finds the rows of a statement.
func planOf(t *testing.T, db *sql.DB, statement string) (plan string) {
	t.Helper()
	for i, value := range values(t, db, "EXPLAIN QUERY PLAN "+statement, make([]any, 10)...) {
		if i%4 == 3 { // behind three numbers
			plan += string(value) + "; "
		}
	}
	return plan
}
