// Package sqltest has what the tests on SQLite and MariaDB share: a place of its
// own for each test, and a MariaDB that a test kills. It also has a driver and a
// network that fail where a test says, for these and other servers. Package
// pgtest is for the tests on Postgres.
package sqltest

import (
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

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

// MariaDB makes a database of the test's own in the MariaDB that tests may use.
func MariaDB(t testing.TB) *mysql.Config {
	t.Helper()
	return newDatabase(t, servers.MariaDB.Address(t))
}

func newDatabase(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = "sallyport_" + strings.ToLower(rand.Text())
	servers.Execute(t, admin, "CREATE DATABASE "+config.DBName)
	t.Cleanup(func() {
		defer admin.Close()
		// A transaction that a test left open ends with its connection.
		var ids sql.NullString
		if err := admin.QueryRow("SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE db = ?",
			config.DBName).Scan(&ids); err != nil {
			t.Error(err)
		}
		for id := range strings.SplitSeq(ids.String, ",") {
			admin.Exec("KILL " + id) // it may have ended
		}
		admin.SetMaxOpenConns(1)
		servers.Execute(t, admin, "SET SESSION lock_wait_timeout = 60")
		servers.Execute(t, admin, "DROP DATABASE "+config.DBName)
	})
	return config
}

// Settings are those that the connections of a program may have: a store works with
// each of them.
var Settings = map[string]func(*mysql.Config){
	"interpolateParams": func(c *mysql.Config) {
		c.InterpolateParams, c.ParseTime, c.Loc = true, true, time.FixedZone("", 3600)
	},
	"clientFoundRows": func(c *mysql.Config) { c.ClientFoundRows = true },
	"latin1":          func(c *mysql.Config) { c.Params = map[string]string{"charset": "latin1"} },
	"session": func(c *mysql.Config) {
		c.Params = map[string]string{
			"time_zone": "'+05:30'", "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
			"tx_isolation": "'READ-COMMITTED'", "collation_connection": "utf8mb4_unicode_ci",
		}
	},
	"snapshot isolation": func(c *mysql.Config) { // the default of MariaDB 11.8
		c.Params = map[string]string{"tx_isolation": "'READ-COMMITTED'", "innodb_snapshot_isolation": "1"}
	},
	"serializable": func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'"} },
	"serializable, snapshot isolation": func(c *mysql.Config) {
		c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'", "innodb_snapshot_isolation": "1"}
	},
}

// OwnMariaDB is a MariaDB that a test may kill.
type OwnMariaDB struct{ *servers.Daemon }

// NewMariaDB returns a server that does not run yet.
func NewMariaDB(t testing.TB) *OwnMariaDB {
	t.Helper()
	servers.MariaDB.Address(t) // so that it is left out with the others
	m := &OwnMariaDB{servers.NewDaemon(t, "mysql")}
	m.Run(servers.Program(t, "mariadb-install-db", "mariadb-server"),
		"--no-defaults", "--datadir="+m.Dir+"/data", "--tmpdir="+m.Dir, "--skip-test-db")
	return m
}

func (m *OwnMariaDB) dsn() string { return "root@unix(" + m.Dir + "/socket)/mysql" }

// Start starts the server and waits until it serves.
func (m *OwnMariaDB) Start() {
	m.T.Helper()
	db, err := sql.Open("mysql", m.dsn())
	if err != nil {
		m.T.Fatal(err)
	}
	// A server that starts removes the temporary files of others.
	m.Daemon.Start(db, servers.Program(m.T, "mariadbd", "mariadb-server"), "--no-defaults",
		"--datadir="+m.Dir+"/data", "--tmpdir="+m.Dir, "--socket="+m.Dir+"/socket", "--pid-file="+m.Dir+"/pid",
		"--skip-networking", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=16M")
}

// Database makes a database in the server.
func (m *OwnMariaDB) Database() *mysql.Config { return newDatabase(m.T, m.dsn()) }
