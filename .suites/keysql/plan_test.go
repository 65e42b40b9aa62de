package keysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// Where there are thousands of children, a statement reads those that it is for,
// and locks no others. MariaDB counts them.
func TestRowsRead(t *testing.T) {
	d := mariadb(t)
	db := d.open(t)
	db.SetMaxOpenConns(1) // its session counts
	store := d.wrap(db, keysql.Options{})
	seed(t, d, "acme", 1000)
	seed(t, d, "other", 1000)
	execute(t, db, `
		INSERT INTO sallyport_keys (id, digest, organization, environment, name, hint, scopes, created_at,
			created_by, suspended, issue_token, rotated_from, version, parent, root, expires_at)
		SELECT CONCAT('child_', id), UNHEX(SHA2(id, 256)), organization, environment, name, hint, scopes, created_at,
			created_by, suspended, '', CONCAT('child_', id), 1, 'acme_key_1', 'acme_key_1',
			(UNIX_TIMESTAMP() + IF(SUBSTR(id, 10) > 500, 3600, -3600)) * 1000000
		FROM sallyport_keys WHERE organization = 'acme'`)
	execute(t, db, "ANALYZE TABLE sallyport_keys")
	list := func(organization string, p issuing.Page) func(context.Context) error {
		return func(ctx context.Context) error {
			keys, err := store.List(ctx, organization, p)
			if err == nil && len(keys) != 50 {
				t.Errorf("got %d keys, want 50", len(keys))
			}
			return err
		}
	}
	for what, do := range map[string]func(ctx context.Context) error{
		"a page":                      list("acme", issuing.Page{}),
		"a page of children":          list("acme", issuing.Page{Parent: "acme_key_1"}),
		"a page of all organizations": list("", issuing.Page{AllOrganizations: true}),
		"an insert with too many children": func(ctx context.Context) error {
			k := newKey("acme")
			k.Parent, k.Ancestors = "acme_key_1", []*keystore.Key{{ID: "acme_key_1"}}
			if err := store.InsertAudited(ctx, k, newEntry(k), 50); !errors.Is(err, issuing.ErrTooManyKeys) {
				t.Errorf("got %v, want ErrTooManyKeys", err)
			}
			return nil
		},
		"a sweep": func(ctx context.Context) error {
			_, err := store.SweepAudit(ctx, time.Now().Add(-time.Hour))
			return err
		},
	} {
		execute(t, db, "FLUSH STATUS")
		if err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var read int
		if err := db.QueryRowContext(t.Context(), "SELECT SUM(variable_value) FROM information_schema.session_status "+
			"WHERE variable_name LIKE 'HANDLER_READ%'").Scan(&read); err != nil || read > 200 {
			t.Errorf("%s reads %d rows, %v, want 50 and a few", what, read, err)
		}
	}
}
