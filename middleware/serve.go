package middleware

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve serves srv on ln, through [RequestIDListener], until ctx ends. Then it
// accepts no more requests, and returns once those that it has begun are
// answered and saved. After Idempotency.Timeout, or that of a route if it is
// longer, and 10 seconds more it closes what is left, and the error says so.
// Repeats that wait hold it up by idem.Options.Wait: give ctx.Done() to
// idem.Options.Draining. If the listener fails, it shuts down and returns that
// error.
//
// The functions in upkeep run beside the server. Their contexts end after the
// last request: the Run of a keystore.Cached, a keystore.Uses or a store of
// replies belongs here. Serve waits for all of them and returns their errors, but
// for that of the context. One that fails early does not end the server; its
// error goes to the log at once.
//
// srv must have a Handler. Where it sets no timeout, Serve does: 5 seconds for
// the header of a request, 30 for all of it, a minute for a response, two for
// an idle connection. A negative one is none. WriteTimeout also cuts off a
// stream without an Idempotency-Key: for longer ones set it to -1. Call Serve
// once for a srv.
func (g *Guard) Serve(
	ctx context.Context, srv *http.Server, ln net.Listener, upkeep ...func(context.Context) error,
) error {
	if srv.Handler == nil {
		panic("middleware: Serve: the server has no Handler")
	}
	srv.ReadHeaderTimeout = cmp.Or(srv.ReadHeaderTimeout, 5*time.Second)
	srv.ReadTimeout = cmp.Or(srv.ReadTimeout, 30*time.Second)
	srv.WriteTimeout = cmp.Or(srv.WriteTimeout, time.Minute)
	srv.IdleTimeout = cmp.Or(srv.IdleTimeout, 2*time.Minute)

	values := context.WithoutCancel(ctx)
	tending, stop := context.WithCancel(values)
	failed := make([]error, len(upkeep))
	var running sync.WaitGroup
	for i, run := range upkeep {
		running.Go(func() {
			err := run(tending)
			early := tending.Err() == nil
			if early && err != nil {
				g.options.Hooks.logger().Error("middleware: an upkeep function of Serve failed", "error", err)
			}
			if early || !errors.Is(err, context.Canceled) {
				failed[i] = err
			}
		})
	}
	ended := make(chan error, 1)
	withIDs := RequestIDListener(srv, ln, g.options)
	go func() {
		defer close(ended)
		ended <- srv.Serve(withIDs)
	}()
	var err error
	select {
	case err = <-ended: // the listener broke
	case <-ctx.Done():
	}
	end := time.Now().Add(g.longest).Add(10 * time.Second) // the sum of the two may be too large
	drain, cancel := context.WithDeadline(values, end)
	defer cancel()
	err = errors.Join(err, srv.Shutdown(drain), g.WaitSettled(drain), srv.Close())
	<-ended // ln is closed, also if srv had not begun to serve it
	stop()
	running.Wait()
	return errors.Join(err, errors.Join(failed...))
}

// Serve is [Guard.Serve]. A srv without a Handler serves the API.
func (a *API) Serve(
	ctx context.Context, srv *http.Server, ln net.Listener, upkeep ...func(context.Context) error,
) error {
	if srv.Handler == nil {
		srv.Handler = a
	}
	return a.guard.Serve(ctx, srv, ln, upkeep...)
}
