package sqltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// PgBouncer starts a pooler that gives each transaction any of its connections,
// and returns how a database is reached through it.
func PgBouncer(t testing.TB, to *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // not in every user's path
	}
	if err != nil {
		t.Skip("left out: a pooler; it needs pgbouncer, which is in Debian's package pgbouncer")
	}
	s := newServer(t, "postgres")
	t.Cleanup(s.Kill)
	password := ""
	if to.Password != "" { // an empty one is a mistake in the settings
		password = " password='" + to.Password + "'"
	}
	settings := filepath.Join(s.Dir, "pgbouncer.ini")
	err = os.WriteFile(settings, fmt.Appendf(nil, `
[databases]
pooled = host=%s port=%d dbname=%s user=%s%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
`, to.Host, to.Port, to.Database, to.User, password, to.RuntimeParams["search_path"], s.Dir), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	through := to.Copy()
	through.Host, through.Port, through.Database = s.Dir, 6432, "pooled"
	through.TLSConfig, through.Fallbacks = nil, nil
	delete(through.RuntimeParams, "search_path")
	s.start(stdlib.OpenDB(*through), program, settings)
	return through
}
