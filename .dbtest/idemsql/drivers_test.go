package idemsql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
)

// watched returns a pool whose statements hook is told of.
func (d database) watched(t testing.TB, hook sqltest.Hook) *sql.DB {
	t.Helper()
	if !d.pgx {
		return sqltest.Watch(t, d.open(t), hook)
	}
	db, err := d.pgxPool(pgxWatcher{hook})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(db) })
	return db
}

// pgxWatcher tells of a batch, which is one round trip, as of one statement. It
// has no connection to offer, and makes no statement fail.
type pgxWatcher struct{ hook sqltest.Hook }

func (p pgxWatcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	p.hook(ctx, nil, q.SQL)
	return ctx
}

func (pgxWatcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p pgxWatcher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range b.Batch.QueuedQueries {
		word, _, _ := strings.Cut(strings.TrimSpace(q.SQL), " ")
		texts = append(texts, word)
	}
	p.hook(ctx, nil, strings.Join(texts, "+"))
	return ctx
}

func (pgxWatcher) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (pgxWatcher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
