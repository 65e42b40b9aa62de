// Package sqltest has what the tests on SQLite and MariaDB share: a place of its
// own for each test, and a MariaDB that a test kills. It also has a driver and a
// network that fail where a test says, for these and other servers. Package
// pgtest is for the tests on Postgres.
package sqltest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// SQLite returns the name of a file that is not there yet.
func SQLite(t testing.TB) string {
	servers.SQLite.Met(t)
	return filepath.Join(t.TempDir(), "sqlite.db")
}

// MustSay wants an error with each of the words, or none if there are no words.
func MustSay(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Errorf("%s: got %v, want an error with %q", what, err, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(word)) {
			t.Errorf("%s: got %v, want it to say %q", what, err, word)
		}
	}
}
