// Package sqltest has what the tests on SQLite and MariaDB share: a place of its
// own for each test, and a MariaDB that a test kills. Package pgtest is for those
// on Postgres. It lies in a hidden folder, because the stores have no parent but
// the module, and importers need none of it.
package sqltest

import (
	"path/filepath"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

// SQLite returns the name of a file that is not there yet.
func SQLite(t testing.TB) string {
	servers.SQLite.Met(t)
	return filepath.Join(t.TempDir(), "sqlite.db")
}
