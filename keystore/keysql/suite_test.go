package keysql_test

import (
	"database/sql"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

func TestSuite(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		keystoretest.Suite{
			New: func(*testing.T) keystore.Manager { return store },
			Unavailable: func(t *testing.T) keystore.Manager {
				return d.wrap(d.away(t), keysql.Options{})
			},
		}.Run(t)
	})
}

func TestSuiteOnOneConnection(t *testing.T) {
	keystoretest.Suite{
		New: func(t *testing.T) keystore.Manager {
			store := keysql.SQLite(sqliteMemory(t), keysql.Options{})
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return store
		},
		Unavailable: func(t *testing.T) keystore.Manager {
			db := sqliteMemory(t)
			db.Close()
			return keysql.SQLite(db, keysql.Options{})
		},
	}.Run(t)
}

func TestNilDatabase(t *testing.T) {
	for name, store := range map[string]func(*sql.DB, keysql.Options) *keysql.Store{"Postgres": keysql.Postgres, "SQLite": keysql.SQLite, "MySQL": keysql.MySQL} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s(nil) returned, want a panic where the mistake is", name)
				}
			}()
			store(nil, keysql.Options{})
		}()
	}
}
