package keysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// readOnly returns a pool of one session that cannot write.
func (d database) readOnly(t testing.TB) *sql.DB {
	t.Helper()
	db := d.open(t)
	db.SetMaxOpenConns(1)
	execute(t, db, map[string]string{
		"sqlite":   "PRAGMA query_only = 1",
		"postgres": "SET default_transaction_read_only = on",
		"mariadb":  "SET SESSION TRANSACTION READ ONLY",
	}[d.name])
	return db
}

func TestCheck(t *testing.T) {
	words := map[string]string{"sqlite": "readonly", "postgres": "read-only", "mariadb": "read only"}
	inEachEmpty(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.wrap(db, keysql.Options{})
		sqltest.MustSay(t, "without tables", store.Check(t.Context()), "keysql: check: ", "sallyport_keys", "call Migrate")
		migrate(t, store)
		sqltest.MustSay(t, "with tables", store.Check(t.Context()))
		one := d.open(t)
		one.SetMaxOpenConns(1)
		sqltest.MustSay(t, "on one connection", d.wrap(one, keysql.Options{}).Check(t.Context()))
		sqltest.MustSay(t, "read-only", d.wrap(d.readOnly(t), keysql.Options{}).Check(t.Context()), words[d.name])
		execute(t, db, "UPDATE sallyport_keys_schema SET version = version + 1")
		sqltest.MustSay(t, "with a later schema", store.Check(t.Context()))
		sqltest.MustSay(t, "of another prefix", d.wrap(db, keysql.Options{Prefix: "other_"}).Check(t.Context()),
			"other_keys", "call Migrate")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		sqltest.MustSay(t, "in a context that has ended", store.Check(ended), "context canceled")

		execute(t, db, "DROP TABLE sallyport_keys_audit")
		sqltest.MustSay(t, "without the audit", store.Check(t.Context()), "sallyport_keys_audit", "call Migrate")
		sqltest.MustSay(t, "without the audit, read-only", d.wrap(d.readOnly(t), keysql.Options{}).Check(t.Context()),
			"sallyport_keys_audit", "call Migrate", words[d.name])
		execute(t, db, "ALTER TABLE sallyport_keys DROP COLUMN last_used_from")
		sqltest.MustSay(t, "without a column", store.Check(t.Context()), "last_used_from", "call Migrate")
	})
}

// A database that does not answer is not one of another kind.
func TestCheckAway(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.wrap(d.away(t), keysql.Options{})
		for what, err := range map[string]error{"check": store.Check(t.Context()), "migrate": store.Migrate(t.Context())} {
			if sqltest.MustSay(t, "away", err, "keysql: "+what+": "); strings.Contains(fmt.Sprint(err), "make the store") {
				t.Errorf("got %v, want no word of a dialect", err)
			}
		}
	})
}

func TestCheckDialect(t *testing.T) {
	makers := map[string]func(*sql.DB, keysql.Options) *keysql.Store{
		"SQLite": keysql.SQLite, "Postgres": keysql.Postgres, "MySQL": keysql.MySQL,
	}
	inEach(t, func(t *testing.T, d database) {
		right := map[string]string{"sqlite": "SQLite", "postgres": "Postgres", "mariadb": "MySQL"}[d.name]
		for name, maker := range makers {
			if name != right {
				store := maker(d.open(t), keysql.Options{})
				sqltest.MustSay(t, name, store.Check(t.Context()), "no "+name, "make the store with "+right)
				sqltest.MustSay(t, name, store.Migrate(t.Context()), "no "+name, "make the store with "+right)
			}
		}
	})
}

// A request to tables that are not there says what to do.
func TestNotMigratedSaysMigrate(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		_, err := store.Lookup(t.Context(), keystore.Digest{})
		sqltest.MustSay(t, "Lookup", err, "sallyport_keys", "call Migrate")
		sqltest.MustSay(t, "Insert", insert(t.Context(), store, newKey("acme")), "sallyport_keys", "call Migrate")
		migrate(t, store)
		execute(t, d.open(t), "ALTER TABLE sallyport_keys DROP COLUMN hint")
		_, err = store.Lookup(t.Context(), keystore.Digest{})
		sqltest.MustSay(t, "Lookup without a column", err, "hint", "call Migrate")
		sqltest.MustSay(t, "Insert without a column", insert(t.Context(), store, newKey("acme")), "hint", "call Migrate")
	})
}

// A server without the right to change the schema can call Migrate as well.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.db")
	k := inserted(t, emptySQLite(file).migrated(t).store(t), "acme", 1)[0]
	reader := keysql.SQLite(opened(t, "file:"+file+"?mode=ro"), keysql.Options{})
	sqltest.MustSay(t, "mode=ro", reader.Check(t.Context()), "readonly", "file")
	migrate(t, reader)
	lookup(t, reader, k)
}

func TestCheckStandby(t *testing.T) {
	t.Parallel()
	primary, standby := pgtest.NewServer(t), pgtest.NewServer(t)
	primary.Start()
	store := keysql.Postgres(primary.Open(), keysql.Options{})
	migrate(t, store)
	standby.Run("pg_basebackup", "-D", standby.Data(), "-R", "-c", "fast", "--no-sync", "-h", primary.Dir, "-U",
		"postgres")
	standby.Start()
	sqltest.MustSay(t, "the primary", store.Check(t.Context()))
	sqltest.MustSay(t, "the standby", keysql.Postgres(standby.Open(), keysql.Options{}).Check(t.Context()), "read-only")
}

func TestCheckReadOnlyMariaDB(t *testing.T) {
	t.Parallel()
	own := sqltest.NewMariaDB(t)
	own.Start()
	config := own.Database()
	admin := mysqlPool(t, config)
	migrate(t, keysql.MySQL(admin, keysql.Options{}))
	for _, statement := range []string{
		"FLUSH PRIVILEGES", // from here on there are rights
		"CREATE USER app@localhost",
		"GRANT ALL ON " + config.DBName + ".* TO app@localhost",
	} {
		execute(t, admin, statement)
	}
	config.User = "app"
	store := keysql.MySQL(mysqlPool(t, config), keysql.Options{})
	sqltest.MustSay(t, "read_only = 0", store.Check(t.Context()))
	execute(t, admin, "SET GLOBAL read_only = 1")
	sqltest.MustSay(t, "read_only = 1", store.Check(t.Context()), "read-only")
}

// A pooler may give each statement another session. The default mode of pgx,
// which prepares statements, does not go with that.
func TestCheckPooler(t *testing.T) {
	t.Parallel()
	config := pgtest.Schema(t)
	pooled := pgtest.PgBouncer(t, config)
	for mode, safe := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: false,
		pgx.QueryExecModeCacheDescribe:  true,
		pgx.QueryExecModeExec:           true,
		pgx.QueryExecModeSimpleProtocol: true,
	} {
		for c, safe := range map[*pgx.ConnConfig]bool{config: true, pooled: safe} {
			c = c.Copy()
			c.DefaultQueryExecMode = mode
			store := keysql.Postgres(closing(t, stdlib.OpenDB(*c), nil), keysql.Options{})
			migrate(t, store)
			var want []string
			if !safe {
				want = []string{"pooler in transaction mode", "default_query_exec_mode=cache_describe"}
			}
			for range 3 { // not by chance
				sqltest.MustSay(t, mode.String(), store.Check(t.Context()), want...)
			}
		}
	}
}

// Nameless statements are exchanged only when connections ask at one moment.
func TestCheckPoolerByChance(t *testing.T) {
	t.Parallel()
	config := pgtest.PgBouncer(t, pgtest.Schema(t))
	config.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	store := keysql.Postgres(closing(t, stdlib.OpenDB(*config), nil), keysql.Options{})
	var err error
	for range 50 {
		if err = store.Check(t.Context()); err != nil && strings.Contains(err.Error(), "pooler in transaction mode") {
			return
		}
	}
	t.Errorf("got %v 50 times, want it to say %q once", err, "pooler in transaction mode")
}
