// Package keysql keeps API keys in Postgres, MySQL, MariaDB or SQLite, so that
// they survive a restart and several servers share them. It is an
// [issuing.Store] on [database/sql]; the driver is the program's own, such as
// pgx, lib/pq, go-sql-driver/mysql, modernc.org/sqlite or mattn/go-sqlite3.
//
//	db, err := sql.Open("pgx", dsn)
//	…
//	store := keysql.Postgres(db, keysql.Options{})
//	if err := store.Migrate(ctx); err != nil { … }
//	if err := store.Check(ctx); err != nil { … }
//	keys := keystore.NewCached(store, keystore.CacheOptions{})
//	go keys.Run(ctx)
//
// The keys are in sallyport_keys, each with about 700 bytes of Postgres and 400
// of SQLite, indexes included, plus its texts beyond a few words. The audit is
// in sallyport_keys_audit, with about 400 bytes of Postgres for each act until it
// is swept. How a key is used is in sallyport_keys_scopes, a row for each scope
// that it has needed, and in sallyport_keys_days, a row of about 170 bytes for
// each of the last 30 days on which it was used; they go with the key.
// [Store.Migrate] makes all of it, or a tool of the team's own does from
// [Store.Schema]. Secrets are not in it: the digest leads to no token and the
// hint is the last four characters.
//
// The feed also has the keys that are inserted or changed with SQL, because the
// schema numbers them. Caches learn of them as soon as of other changes, see
// MaxStaleness of [keystore.CacheStats]. To revoke every key of an organization, in
// Postgres,
//
//	UPDATE sallyport_keys SET revoked_at = now() WHERE organization = 'acme';
//
// and with unixepoch() * 1000000 instead of now() in SQLite, UNIX_TIMESTAMP() *
// 1000000 in MySQL, where times are microseconds. A row that is deleted is not
// in the feed, and its key can live in caches for their TTL: revoke first, or
// call [Store.Erase], which removes an organization.
//
// Postgres has to be version 13 or later, and at its default isolation level,
// READ COMMITTED. SQLite has to be 3.38 or later, and wants journal_mode(WAL),
// so that lookups do not wait for writers, and a busy_timeout, so that writers
// wait for each other. A database in memory must be limited to one connection,
// since each one would have a database of its own.
//
// MariaDB has to be 10.6 or later and is what the tests run on; MySQL 8.0.29 or
// later has the same statements and is untried. The driver's errors must have
// the field Number of go-sql-driver/mysql; no setting of its DSN is needed, and
// interpolateParams=true spares a round trip. Texts are in binary columns,
// which some clients print as hexadecimal, and identifiers have at most 512
// bytes. Inserts and changes of keys wait for each other, so do not leave a
// transaction open that has made some. With a binary log, Migrate needs the
// privilege SUPER or log_bin_trust_function_creators = 1 for its triggers. Where
// connections may reach several nodes of a Galera cluster, set wsrep_sync_wait=7
// in the DSN: a node that is behind still has a revoked key as active, and may
// answer so to the process that has revoked it.
package keysql
