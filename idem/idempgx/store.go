package idempgx

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// Options are the settings of a [Store], those of idemsql.
type Options = idemsql.Options

// Store keeps claims and replies in a Postgres database, and joins requests with
// transactions of pgx. Migrate of [idemsql.Store] makes its table. Many goroutines
// may use it, and nothing has to be closed. Use one Store for a database in a
// process: it counts the transactions that are open.
type Store struct {
	// Store has leases, the table and its upkeep, on the same pool. Its own
	// Join is not to be used.
	*idemsql.Store

	pool    *pgxpool.Pool
	options pgx.TxOptions // of the transactions of joined requests
	names   *claims.Names
	joiner  *claims.Joiner
}

var (
	_ idem.Joiner  = (*Store)(nil) // an idem.Eraser too, by idemsql
	_ idem.Counter = (*Store)(nil)
)

// New returns a Store in the Postgres database of a pool, which it asks nothing
// yet. The table is the one that the search_path of its connections finds at the
// first use. It panics when the pool is nil, or when the prefix or the isolation
// is not valid.
func New(pool *pgxpool.Pool, o Options) *Store {
	if pool == nil {
		panic("idempgx: a Store needs a pool")
	}
	level := strings.ToLower(o.Isolation.String())
	switch pgx.TxIsoLevel(level) {
	case "default":
		level = ""
	case pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted:
	default:
		panic("idempgx: Postgres has no isolation " + level)
	}
	o.Prefix, o.Logger = cmp.Or(o.Prefix, "sallyport_"), cmp.Or(o.Logger, slog.Default())
	s := &Store{
		Store:   idemsql.Postgres(stdlib.OpenDBFromPool(pool), o),
		pool:    pool,
		options: pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)},
		names:   claims.NewNames(o.Prefix, claims.PostgresHome, claims.PostgresWhere),
	}
	s.joiner = (&claims.Joiner{
		Package: "idempgx", Logger: o.Logger, Names: s.names, Size: s.size, Waits: s.waitedFor, Conn: s.conn,
		One: s.one, Peek: peek, Mark: mark, Keep: keep, Held: held, Roles: true, Tells: true,
	}).Open()
	return s
}

// JoinHonorsContext promises, in the meaning of [idem.Store], that neither Join
// nor the Settle of its transactions outlasts its context: pgx closes the
// connection.
func (s *Store) JoinHonorsContext() {}

// Join implements [idem.Joiner]. At most half as many transactions are open as
// the pool may have connections; the next get their turn in the order in which
// they came. A request that has waited for 50 milliseconds gets the reply that
// is there already, without its turn. Settle each transaction: ctx does not end it.
func (s *Store) Join(ctx context.Context, c idem.Claim, timeout time.Duration) (idem.Record, idem.Transaction, error) {
	return s.joiner.Join(ctx, c, timeout)
}

// Statements, without the names of the store.
var (
	fresh  = claims.Postgres(claims.PostgresFresh(claims.LockAlone))
	decide = claims.Postgres(claims.PostgresBegin(claims.LockAlone))
	peek   = claims.Postgres(claims.Peek)
	mark   = claims.Postgres(claims.Mark)
	settle = claims.Postgres(claims.PostgresSettle)
	keep   = claims.Postgres(claims.PostgresKeep())
	held   = claims.Postgres(claims.Held)
)
