// Package idemsql keeps Idempotency-Keys and their replies in a database that
// the server has already: Postgres, MySQL, MariaDB or SQLite, through
// database/sql and whichever driver the server uses.
//
//	store := idemsql.Postgres(db, idemsql.Options{})
//	err := store.Migrate(ctx) // makes the tables; a team with a migration tool of its own runs store.Schema() there
//	err = store.Check(ctx)    // says what does not fit
//	go store.Run(ctx)         // removes what has expired, and adds up units
//
// A [Store] works in two modes, and both see the same keys.
//
// In lease mode, like any [idem.Store]: a claim is written, the request runs,
// its reply is written. One statement decides, by the database's clock. When
// the process dies in between, the outcome is unknown, and the client is told
// so.
//
// Joined ([idem.Options.Join]): the claim, the rows that the handler writes
// with [Tx], and the reply are one transaction.
//
//	func create(ctx context.Context, title string) error {
//		tx, ok := idemsql.Tx(ctx)
//		if !ok {
//			return errors.New("a create needs an Idempotency-Key")
//		}
//		_, err := tx.ExecContext(ctx, "INSERT INTO tasks (title) VALUES (?)", title)
//		return err
//	}
//
// # What joined mode promises
//
// Of all requests with one key exactly one takes effect, and a crash at any
// moment leaves all of it or nothing. Behind package middleware a reply of 2xx
// or 3xx is committed together with the rows; after a 4xx the rows are taken
// back and the reply alone is kept, also when the database had refused a
// statement; after a 401, 403, 425, 429, 5xx, a panic or a deadline nothing is
// kept and the key is free. With idem alone its Execution.Settle says so:
// OutcomeDone, OutcomeDone with RollBack, OutcomeFree. When the connection breaks
// during COMMIT nobody knows ([idem.ErrCommitUnknown]); a repeat finds out. A
// serialization failure, a deadlock or SQLITE_BUSY leaves nothing, and a
// handler is never run again within one request. What the handler does outside
// the transaction, such as sending a message, is not covered.
//
// A handler may set search_path, role and time limits, or USE another database:
// the reply is saved in the table of the claim, in Postgres by the role that the
// connection had at the claim, under which deferred triggers run too. A
// transaction that cannot be committed, as after a failed statement that was
// overlooked, is an [idem.ErrBroken]: the client gets 500. A constraint that
// fails at COMMIT is an [idem.ErrConstraint], and 409. A handler that is to answer
// that itself runs SET CONSTRAINTS ALL IMMEDIATE first.
//
// A response that streams (text/event-stream and the like, from its first flush
// on) is committed before its first byte leaves. After that flush the
// transaction has ended: its statements return sql.ErrTxDone, a handler that
// fails cannot take its rows back, and a repeat is told that the response was
// not kept. Write all rows before the first flush.
//
// # What it costs
//
// A connection for as long as the handler runs, and in Postgres four round
// trips beside the handler's own:
//
//	BEGIN
//	INSERT  takes the lock of the key and writes the claim
//	…       what the handler does
//	UPDATE  turns the claim into the reply
//	COMMIT
//
// After a 4xx the last two are ROLLBACK and an INSERT of the reply, after a 5xx
// ROLLBACK and a SELECT that finds what the handler has committed itself. A claim
// with a lease and its settlement take one trip each, a repeat two. Units take
// none: they are columns of the claim.
//
// The first hundred joined requests of a process take two trips more, to learn
// whether handlers change the role, and all of them once one does. If it is a
// later one, that one is rolled back, its client gets 503, and its retry stands.
//
// Joined requests take at most half of the pool, or 32 connections if it has no
// limit; the others wait in the order in which they came, for as long as
// [idem.Options].Wait, and then fail ([idem.ErrNoTurn]). That leaves
// connections for handlers that use the *sql.DB beside their transaction. Such a
// handler can still wait for itself, for a row that its transaction has locked
// or in SQLite for the file; a warning is logged when that uses up the pool.
// Give the *sql.DB a limit, and of at least two.
//
// Repeats hold no connection while they wait. In Postgres they find out by
// an advisory lock that the key is taken. Its numbers are the table's and the
// first 32 bits of the key's hash; while a joined request runs, another key
// with the same bits is told that it is in progress. The lock belongs to the
// transaction, so a pooler may have transaction mode.
//
// After a 4xx the lock is free between the ROLLBACK and the INSERT of the
// reply. A request from another process that takes the key in that moment owns
// it: the reply of the first is not stored, its client gets 503 and finds the
// other's when it tries again.
//
// The transactions have the database's isolation, READ COMMITTED unless
// somebody changed it, or that of [Options]. A server that vanishes without
// closing its connections keeps its keys until Postgres notices: set
// tcp_keepalives_idle, or an idle_in_transaction_session_timeout longer than
// handlers take.
//
// # Units
//
// A [Store] is an [idem.Counter]: it counts the units that operations use. A claim
// with an Account has account, time and units in its own row, and the statement
// that makes its reply final makes its charge final. No other row is written for a
// request, so the creates of one tenant do not wait for each other.
//
// [Store.Run] adds up what is final, each second. One process at a time does, 500
// charges in a transaction: it adds them to a row for each account and UTC day, in
// the table sallyport_used, takes the account off the claim, and, with
// Options.KeepCharges, writes a row for each charge, in sallyport_usage. [Store.Used]
// reads the sums and the claims that are not added up, in one statement. So a count
// is never too low because Run is late, but Used takes longer, and a key whose
// retention is over stays taken until its charge is added up. Let at least one
// process run it.
//
// Charges get their numbers when they are added up, in the order in which these
// transactions commit. A reader that acknowledges what it has read misses none,
// however long a joined request is open. They are kept until [Store.Acknowledge].
// Sums are kept for ever, a row for each account and day. [Store.Erase] leaves both.
//
// # MySQL and MariaDB
//
// The driver is github.com/go-sql-driver/mysql, or one whose errors have the
// same field Number. No setting of its DSN is needed. MariaDB has to be 10.6 or
// later and is what the tests run on; MySQL 8.0.29 or later has the same
// statements and is untried.
//
// Repeats find out by a named lock (GET_LOCK) that the key is taken. It
// belongs to the session, so a proxy must keep a session together for as long
// as it holds one. A claim with a lease takes two round trips and a commit; a
// joined request eight beside the handler's own. Its transaction has the
// isolation of the session, REPEATABLE READ unless somebody changed it.
//
// The server ends a transaction by itself: a deadlock takes all of it back, and
// CREATE TABLE and the like commit it. A handler must return the error of a
// deadlock. If it goes on in spite of it, nothing that it writes after that
// stands either, and the client gets 503.
//
// The nodes of a Galera cluster do not share named locks. Two handlers may then
// run at the same time for one key; one of the transactions fails when it is to
// be committed, and leaves nothing. Let one node have all writes, and do not
// set pxc_strict_mode=ENFORCING, which forbids these locks.
//
// # SQLite
//
// SQLite has one writer: joined mode means one create at a time, in all
// processes that have the file open, while reads go on. Set a busy_timeout of
// some seconds and the WAL journal. A joined handler that holds the file for
// longer, or another process, makes the others' requests fail with 503, and
// keeps leases from being renewed: use joined mode for all routes or for none,
// and Postgres where handlers are slow.
//
// # Upkeep
//
// Rows are kept for the retention, 24 hours unless [idem.Options] say otherwise,
// and hold the replies as plain text unless there is an [idem.Seal]: whoever
// reads the table or its backups reads what clients were told. [Store.Run]
// removes those whose time is over; run it in one server or in all.
package idemsql
