package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// suite returns a suite for a store on one pool, whose time the test moves.
func suite(d database, db *sql.DB) idemtest.Suite {
	store := d.on(db, idemsql.Options{})
	return idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			execute(t, db, "DELETE FROM sallyport_idem")
			execute(t, db, "DELETE FROM tasks")
			return store
		},
		Advance: func(t *testing.T, _ idem.Store, by time.Duration) { d.advance(t, db, by) },
		Write: func(ctx context.Context, row string) error {
			tx, ok := idemsql.Tx(ctx)
			if !ok {
				return errors.New("the context carries no transaction")
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO tasks (id, title) VALUES ('"+row+"', 'title')")
			return err
		},
		Rows: func(t *testing.T, _ idem.Store) (rows []string) {
			found, err := db.QueryContext(t.Context(), "SELECT id FROM tasks")
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			for found.Next() {
				var row string
				if err := found.Scan(&row); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, row)
			}
			if err := found.Err(); err != nil {
				t.Fatal(err)
			}
			return rows
		},
	}
}

func TestSuite(t *testing.T) {
	inEach(t, func(t *testing.T, d database) { suite(d, d.open(t)).Run(t) })
}

// A server or a role may have another isolation as its default.
func TestSuiteUnderIsolation(t *testing.T) {
	d := postgres(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			suite(d, d.with("default_transaction_isolation", level).open(t)).Run(t)
		})
	}
}

// The modes of pgx that are safe behind a pooler do not ask the server for the
// types of parameters, or not each time.
func TestSuiteInExecModes(t *testing.T) {
	d := postgres(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			d := d
			d.conf = d.conf.Copy()
			d.conf.DefaultQueryExecMode = mode
			suite(d, d.open(t)).Run(t)
		})
	}
}

func TestSuiteOnOneConnection(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		db.SetMaxOpenConns(1)
		s := suite(d, db)
		s.Write, s.Rows = nil, nil // a transaction needs a connection of its own
		s.Run(t)
	})
}

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, idemsql.Options) *idemsql.Store{"Postgres": idemsql.Postgres, "SQLite": idemsql.SQLite, "MySQL": idemsql.MySQL} {
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
