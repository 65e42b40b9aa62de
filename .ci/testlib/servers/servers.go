// Package servers tells tests where the servers are that they may use, and starts
// those that a test has for itself. A test that uses one says so by an attribute,
// which .ci/test counts.
package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Server is one that stores keep their data in.
type Server string

const (
	Postgres Server = "Postgres"
	MariaDB  Server = "MariaDB"
	Redis    Server = "Redis"
	SQLite   Server = "SQLite" // it has no address
)

// Address returns what SALLYPORT_POSTGRES, SALLYPORT_MARIADB or SALLYPORT_REDIS
// holds. Without it the test is left out.
func (s Server) Address(t testing.TB) string {
	t.Helper()
	name := "SALLYPORT_" + strings.ToUpper(string(s))
	address := os.Getenv(name)
	if address == "" {
		t.Skipf("left out: it needs %s; CONTRIBUTING.md has an example", name)
	}
	s.Met(t)
	return address
}

// Met notes that the test uses the server.
func (s Server) Met(t testing.TB) { t.Attr("server", string(s)) }

// Program returns the path of a program that the test starts. Without it the
// test is left out.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // what is in the path chooses a version by itself
	slices.Reverse(places)
	for _, place := range append(places, name, "/usr/sbin/"+name) { // not in every user's path
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	t.Skipf("left out: it needs %s, which is in Debian's package %s", name, debian)
	return ""
}
