// Package sqltest has what the tests on each kind of database share: a place of
// its own for each test, and a MariaDB that a test kills. Package pgtest has
// more for those on Postgres. It lies in a hidden folder, because the stores
// have no parent but the module, and importers need none of it.
package sqltest

import (
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/pgtest"
	"github.com/sallyport-go/sallyport/.ci/servers"
)

// SQLite returns the name of a file that is not there yet.
func SQLite(t testing.TB) string {
	servers.SQLite.Met(t)
	return filepath.Join(t.TempDir(), "sqlite.db")
}

// Postgres makes a schema of the test's own in the Postgres that tests may use.
func Postgres(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	return pgtest.Schema(t)
}
