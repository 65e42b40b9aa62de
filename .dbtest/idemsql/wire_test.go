package idemsql_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
)

// watched returns a pool whose statements hook is told of.
func (d database) watched(t testing.TB, hook sqltest.Hook) *sql.DB {
	t.Helper()
	if !d.pgx {
		return sqltest.Watch(t, d.open(t), hook)
	}
	db, err := d.pgxPool(&pgxWatcher{hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(db) })
	return db
}

// pgxWatcher tells of a batch, which is one round trip, as of one statement. It
// has no connection to offer, and makes no statement fail.
type pgxWatcher struct {
	multitracer.Tracer
	hook sqltest.Hook
}

func (p *pgxWatcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	p.hook(ctx, nil, q.SQL)
	return ctx
}

func (p *pgxWatcher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range b.Batch.QueuedQueries {
		word, _, _ := strings.Cut(strings.TrimSpace(q.SQL), " ")
		texts = append(texts, word)
	}
	p.hook(ctx, nil, strings.Join(texts, "+"))
	return ctx
}

// through returns the database as it is reached over a wire.
func (d database) through(w *sqltest.Wire) database {
	if d.my != nil {
		d.my = w.MySQL(d.my)
		return d
	}
	d.conf = d.conf.Copy()
	d.conf.DialFunc, d.conf.Fallbacks = w.Dial, nil
	return d
}

// commitFault is what becomes of the next COMMIT.
type commitFault struct{ atomic.Uint32 }

func (f *commitFault) set(fault sqltest.Fault) { f.Store(uint32(fault)) }

// isToCome reports whether there was no COMMIT since it was set.
func (f *commitFault) isToCome() bool { return sqltest.Fault(f.Load()) != sqltest.None }

// faulty returns the database over a wire, and the fault of its next COMMIT.
func (d database) faulty() (database, *commitFault) {
	f := new(commitFault)
	commits := []string{"commit\x00", "\x03commit"}
	if d.pgx && d.conf.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// It binds a statement that it has prepared.
		digest := sha256.Sum256([]byte("commit"))
		commits = []string{fmt.Sprintf("\x00stmtcache_%x\x00", digest[:24])}
	}
	w := &sqltest.Wire{Request: func(_ *sqltest.Conn, request []byte) sqltest.Fault {
		request = bytes.ToLower(request)
		if !slices.ContainsFunc(commits, func(c string) bool { return bytes.Contains(request, []byte(c)) }) {
			return sqltest.None
		}
		return sqltest.Fault(f.Swap(uint32(sqltest.None)))
	}}
	w.Answers = map[sqltest.Fault]string{
		sqltest.Terminate: postgresError("57P01", "terminating connection"),
		sqltest.Refuse:    postgresError("40P01", "deadlock detected"),
	}
	if d.my != nil {
		w.Answers = map[sqltest.Fault]string{
			sqltest.Terminate: mysqlError(1053, "08S01", "Server shutdown in progress"),
			sqltest.Refuse:    mysqlError(1213, "40001", "Deadlock found when trying to get lock"),
		}
	}
	return d.through(w), f
}

// postgresError is an ErrorResponse, whose length counts itself.
func postgresError(state, message string) string {
	fields := "SFATAL\x00VFATAL\x00C" + state + "\x00M" + message + "\x00\x00"
	return "E\x00\x00\x00" + string(rune(4+len(fields))) + fields
}

// mysqlError is an ERR packet, the first one of an answer.
func mysqlError(number uint16, state, message string) string {
	body := string([]byte{0xff, byte(number), byte(number >> 8)}) + "#" + state + message
	return string([]byte{byte(len(body)), 0, 0, 1}) + body
}
