package idempgx_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"

	"github.com/sallyport-go/sallyport/idem"
)

// A faulty tracer panics where a batch begins or has ended, once it is told to.
type faulty struct {
	multitracer.Tracer
	start, end bool
}

func (f *faulty) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if f.start {
		panic("faulty")
	}
	return ctx
}

func (f *faulty) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	if f.end {
		panic("faulty")
	}
}

// A tracer of pgx that panics keeps neither the key, nor the turn, nor the
// connection.
func TestTracerPanics(t *testing.T) {
	tracer := &faulty{}
	pool := newPool(t, 1, func(c *pgx.ConnConfig) { c.Tracer = tracer })
	store := newStore(pool)
	panics := func(name string, call func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s returned, want the panic", name)
			}
			tracer.start, tracer.end = false, false
		}()
		call()
	}
	for _, end := range []bool{false, true} {
		tracer.start, tracer.end = !end, end
		panics("Join", func() { store.Join(t.Context(), claim("key"), 0) })
		// The server frees the key when it has noticed that its connection is
		// closed.
		for until := time.Now().Add(patience); time.Now().Before(until); {
			if r, j, _ := store.Join(t.Context(), claim("key"), 0); r.State == idem.Claimed {
				j.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeFree})
				break
			}
		}
		_, j := join(t, store, "key")
		tracer.start, tracer.end = !end, end
		panics("Settle", func() { j.Settle(t.Context(), finished) })
	}
	_, j := join(t, store, "the next")
	mustSettle(t, j, finished)
}
