package middleware

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// facts are what the stages have found out about a request, as one context
// value. They do not change once other code can see them: a stage that finds
// out more hands on new ones. So a request that a handler sends on its own
// context cannot change what is known about the request outside. Only scoped
// is set later, once.
type facts struct {
	context.Context

	response   *exchange        // the one that the request is answered by; nil before the first stage
	hooks      *Hooks           // of the innermost stage that has any; nil for none
	caller     *keystore.Caller // nil for nobody
	reported   bool             // Options.ReportOnly let the request pass without a caller
	scoped     atomic.Bool      // a scope decision let the caller pass
	idempotent any              // the Idempotent stage that the request is inside of, or nil
	repeatable *http.Request    // as that stage was given it
	claim      *keyed.Claim     // that the handler runs under, or nil
	units      *keyed.Units     // that are counted for the request, or nil
}

type factsKey struct{}

func (f *facts) Value(key any) any {
	if key == (factsKey{}) {
		return f
	}
	return f.Context.Value(key)
}

// Without String and Format, fmt would follow the pointers of a context that is
// printed to the request, and print the API key.
func (f *facts) String() string             { return "middleware.request(" + f.id() + ")" }
func (f *facts) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, f.String()) }

// id returns the request id, "" outside RequestID.
func (f *facts) id() string {
	if f.response == nil {
		return ""
	}
	return f.response.ID
}

func factsOf(ctx context.Context) *facts {
	if f, ok := ctx.(*facts); ok {
		return f
	}
	f, _ := ctx.Value(factsKey{}).(*facts)
	return f
}

// detached is facts as a context for the counter store. It does not end
// when the client leaves: net/http also reports a client that has only closed
// its sending half.
type detached struct{ *facts }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// extend returns a copy of the facts in ctx, to be completed and handed on.
func extend(ctx context.Context) *facts {
	f := new(facts)
	f.copy(ctx, factsOf(ctx))
	return f
}

// copy makes f those of outer, which may be nil, with another context.
func (f *facts) copy(ctx context.Context, outer *facts) {
	f.Context = ctx
	if outer != nil {
		f.response, f.hooks, f.claim, f.units = outer.response, outer.hooks, outer.claim, outer.units
		f.caller, f.reported = outer.caller, outer.reported
		f.idempotent, f.repeatable = outer.idempotent, outer.repeatable
		f.scoped.Store(outer.scoped.Load())
	}
}

// serve calls next with a copy of r whose context is f.
func (f *facts) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	inner := r.WithContext(f)
	defer response.Leave(r, inner, r.MultipartForm)
	next.ServeHTTP(w, inner)
}

// insideIdempotent reports whether w and r, in whose context f was found, belong
// to the request of an outer Idempotent: w is part of its response, or r is that
// request, behind a writer that hides it. A request within a request is another
// one, with another response.
func (f *facts) insideIdempotent(w http.ResponseWriter, r *http.Request) bool {
	if f == nil || f.idempotent == nil {
		return false
	}
	// WithCaller hides the claim, and without RequestID there is no response
	// to compare.
	return keyed.Answers(w) || f.claim == nil && f.response == exchangeOf(w) || keyed.SameRequest(f.repeatable, r)
}

// RequestIDFrom returns the id of the request whose context this is, or "". It
// may be kept.
func RequestIDFrom(ctx context.Context) string {
	if f := factsOf(ctx); f != nil {
		return strings.Clone(f.id()) // which is a part of the exchange
	}
	return ""
}

// WithCaller returns a context in which c is the caller: for middleware that
// authenticates in place of [Guard.Authenticate], and for tests of handlers.
// It checks nothing: ask c.Refused and c.AllowsAddress first. An Enforce outside
// does not count for c, nor do Execution.Free and [AddUnits] reach an Idempotent or
// a Quota outside. Like Authenticate it MUST NOT stand inside [Guard.Idempotent].
func WithCaller(ctx context.Context, c *keystore.Caller) context.Context {
	f := extend(ctx)
	f.caller, f.reported, f.claim, f.units = nil, false, nil, nil
	if known(c) {
		f.caller = c
	}
	f.scoped.Store(false)
	return f
}

// known reports whether c is somebody.
func known(c *keystore.Caller) bool { return c.Tenant() != "" }

// CallerFrom returns who calls by the request whose context this is. It is nil
// outside [Guard.Authenticate], and where [Options].ReportOnly let a request pass
// that has no caller. All methods may be called on nil too, and find nothing.
func CallerFrom(ctx context.Context) *keystore.Caller {
	if f := factsOf(ctx); f != nil {
		return f.caller
	}
	return nil
}
