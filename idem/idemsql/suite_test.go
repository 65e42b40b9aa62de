package idemsql_test

import (
	"database/sql"
	"testing"
	"time"

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
			return store
		},
		Advance: func(t *testing.T, _ idem.Store, by time.Duration) { d.advance(t, db, by) },
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

func TestSuiteOnOneConnection(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		db.SetMaxOpenConns(1)
		suite(d, db).Run(t)
	})
}

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, idemsql.Options) *idemsql.Store{"Postgres": idemsql.Postgres, "SQLite": idemsql.SQLite} {
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
