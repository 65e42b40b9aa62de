package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/dbserver"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// PgBouncer starts a pooler that gives each transaction any of its connections,
// and returns how a database is reached through it.
func PgBouncer(t testing.TB, to *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()
	program := servers.Program(t, "pgbouncer", "pgbouncer")
	s := dbserver.New(t, "postgres")
	password := ""
	if to.Password != "" { // an empty one is a mistake in the settings
		password = " password='" + to.Password + "'"
	}
	settings := filepath.Join(s.Dir, "pgbouncer.ini")
	err := os.WriteFile(settings, fmt.Appendf(nil, `
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
	s.Start(stdlib.OpenDB(*through), program, settings)
	return through
}
