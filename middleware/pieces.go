package middleware

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
)

// RequestID gives each request an id ([xid]: 20 characters, sortable by time,
// not secret) and each response one header that carries it. No handler inside can
// remove, overwrite or repeat it: it is set when the response is committed, for
// every status including 1xx. [RequestIDListener] covers the answers that net/http
// gives before any handler runs.
//
// It MUST be the outermost stage: a handler outside it, such as an
// http.TimeoutHandler, answers without the header. A RequestID inside another one
// does nothing for the same response. When the response ends, [Hooks].Observe is
// told of it.
//
// [xid]: https://github.com/rs/xid
func (g *Guard) RequestID(next http.Handler) http.Handler {
	return g.outside(&gate{ids: true, next: next})
}

// Recover answers a panic with 500 and keeps the connection. If the response is
// already committed, it aborts the connection, so that a truncated body is
// never taken for a whole one. The panic and its stack, which has no arguments,
// go to the log without the request's credentials. Of each credential no eight
// characters in a row are shown; one of four to seven is left out whole, a
// shorter one stays. Eight numbers in a row, which may be bytes of one, are left
// out. A text of more than 8 KiB is cut. If the credentials are more than 8 KiB,
// the type of the panic replaces its text. http.ErrAbortHandler passes through
// without a log line, as in net/http.
//
// It SHOULD stand directly inside [Guard.RequestID]; without one outside, it
// adds one.
func (g *Guard) Recover(next http.Handler) http.Handler {
	return g.outside(&gate{ids: true, recovers: true, next: next})
}

// Authenticate lets a request pass that carries an active API key as a Bearer
// token (RFC 6750, section 2.1), and tells the stages and handlers inside who
// the caller is (see [CallerFrom]).
//
//   - No credentials, or a scheme other than Bearer: 401 with a challenge.
//   - Anything else that is not an active key: 401 with error="invalid_token".
//   - The store does not answer: 503 with Retry-After, never 401, because
//     clients do not retry a 401.
//   - A key that may not be used from this address, or a caller whom the
//     service does not accept: 403.
//   - Credentials of several kinds: 400. See Options.Authenticate.
//   - This client address has used up Options.Failures: 429. An active key
//     that the keystore.Cached remembers still passes, so wrong keys cannot lock
//     out a key that is in use.
//
// If no [Guard.Enforce] has decided, a status below 300 or an upgrade of the
// connection becomes a 500, and a line at level error names the route. The
// handler has run then. What a router answers by itself (404, 405, redirects)
// stays. To test all routes, see middlewaretest.OpenRoutes.
//
// [Guard.RequestID] MUST stand before it, and [Guard.Recover] SHOULD: without
// RequestID its refusals have no id, which the log says once. Put
// a keystore.Cached in front of a store that is not in memory.
func (g *Guard) Authenticate(next http.Handler) http.Handler {
	if g.auth == nil {
		panic("middleware: Authenticate: the Guard was made without a key store and without Options.Authenticate")
	}
	return &gate{guard: g, authenticates: true, next: next}
}

// RateLimit answers 429 with Retry-After for a request over its limits:
// the shortest wait, of at least a second, after which the same request is
// admitted if no other is charged.
//
// [Guard.Authenticate] MUST stand before it, unless Client is the only limit.
// RateLimit SHOULD stand before [Guard.Idempotent]. Inside it, a refusal frees the
// Idempotency-Key, unless the body was read or the response begun: nothing between
// the two may have an effect. RateLimit panics on a RateLimitOptions without a
// limit that is not zero.
func (g *Guard) RateLimit(next http.Handler) http.Handler {
	g.noRateLimit.Store(false)
	if !g.limits.limits() {
		if !reflect.ValueOf(g.options.RateLimit).IsZero() {
			panic("middleware: RateLimit: a field of Options.RateLimit is set, and there is no limit")
		}
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := r.Context().(*facts)
		if !ok {
			f = extend(r.Context())
		}
		if !g.admits(f) && g.limits.needsCaller() {
			keyed.Free(w, r)
			g.report.misuse(w, r, StageRateLimit, "RateLimit counts by organization or key, and has no Authenticate before it")
			return
		}
		x := exchangeOf(w)
		x.know(f)
		if d := g.limits.check(f, x, w, r, routeLimit{}); d.problem != nil {
			keyed.Free(w, r)
			g.report.refuse(w, r, StageRateLimit, d)
			return
		}
		defer g.limits.end(f.caller)
		next.ServeHTTP(w, r)
	})
}

// Enforce lets a request pass whose caller meets the requirement, such as
// [Require] of a scope, which one that implies it grants too. It answers others
// with 403 and error="insufficient_scope" (RFC 6750, section 3.1).
//
// [Guard.Authenticate] MUST stand before it. It MUST NOT stand inside
// [Guard.Idempotent]: a replay would not pass through it. Enforce panics on a
// requirement that is empty or names a scope that Options.Service does not have.
func (g *Guard) Enforce(need Requirement) func(http.Handler) http.Handler {
	check, err := newScopeCheck(need, g.options.Service.Scopes)
	if err != nil {
		panic("middleware: Enforce: " + err.Error())
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f, what := factsOf(r.Context()), ""
			switch {
			case !g.admits(f):
				what = "Enforce has no Authenticate before it"
			case !f.reported && !fits(f.caller, check.registry):
				what = "the caller was made for another scope registry than Options.Service"
			case f.idempotent != nil:
				what = "Enforce stands inside Idempotent, so a replay would skip it; put it outside"
			}
			if what != "" {
				keyed.Free(w, r)
				g.report.misuse(w, r, StageScope, what)
				return
			}
			x := exchangeOf(w)
			x.know(f)
			g.report.pattern(x, r)
			if !f.reported {
				if d := check.check(f.caller, x); d.problem != nil {
					g.report.refuse(w, r, StageScope, d)
					return
				}
			}
			// On a copy: an adapter that does not hand on the request is found out.
			inner := extend(r.Context())
			inner.scoped.Store(true)
			if f.response != nil && f.response.admission != nil {
				f.response.admission.decided.Store(true)
			}
			inner.serve(next, w, r)
			g.warnUnused(w, r)
		})
	}
}

// Idempotent makes a retried request return the original response and take
// effect once. A request that carries an Idempotency-Key
// (draft-ietf-httpapi-idempotency-key-header-07) claims it; a repeat gets the
// stored response with Idempotent-Replayed: true, the first one's id in
// Svc-Original-Request-Id and a request id of its own.
//
//   - An Idempotency-Key belongs to tenant, subject and Partition. The same one
//     with another method, host, path, query, Range, content type or body gets
//     422.
//   - A repeat of a request in progress waits for it.
//   - The handler runs on the request's goroutine with a context that does not
//     end when the client leaves. Its response is saved, then sent.
//   - In lease mode ([idem.Options].Join is false) every response is retained,
//     whatever its status, unless the handler calls [Execution.Free] or the
//     status is in FreeOn: then the Idempotency-Key is free, and a repeat runs
//     the handler again. After a panic the 500 is retained.
//   - In joined mode a 2xx or 3xx is retained with the handler's rows, and a
//     4xx without them. A 401, 403, 425, 429, 5xx and a panic roll back and
//     free the Idempotency-Key.
//   - In joined mode an issuing.Issuer refuses to write: it cannot do so in the
//     transaction. Serve a route that issues keys in lease mode.
//   - In lease mode a response of a streaming media type, or one that grows over
//     MaxResponse, streams. The first is recorded meanwhile: if it ends within
//     MaxResponse, a repeat gets all of it at once. If the client leaves, a handler
//     that is recorded may go on for one Timeout; the context of another ends.
//   - In joined mode a flushed response of a streaming media type is committed
//     before its first byte leaves, and is not retained. All others are held
//     back to their end, whatever their size.
//   - A response whose context ends before its handler returns may be a half;
//     see [IdempotencyOptions].Timeout. An abort, or in a stream a panic, leaves
//     an unknown outcome.
//   - Repeats of a response that is not retained get 409, and never run the
//     handler again. The log has a line for each route and reason, unless the
//     handler called [Execution.DropResponse].
//   - A replay has no Set-Cookie, no trailers and no 1xx responses, and neither
//     Date nor the RateLimit and CORS fields of the original.
//   - When the store does not answer, the handler does not run: 503.
//
// [Guard.Enforce] MUST stand before it, because a replay must not reach a key
// that may not see it. [Guard.RateLimit] SHOULD stand before it. Compression
// belongs outside it; where the handler compresses by itself, a retry with
// another Accept-Encoding gets the stored bytes. Requests without an
// Idempotency-Key pass, unless Required is set.
//
// Replies are kept as plain text wherever the store keeps them, unless the
// Runner has an [idem.Seal].
func (g *Guard) Idempotent(next http.Handler) http.Handler {
	if g.idempotency == nil {
		panic("middleware: Idempotent: Options.Idempotency is Off")
	}
	return g.idempotent(next, nil)
}

// idempotent returns Idempotent, or with a quota Quota.
func (g *Guard) idempotent(next http.Handler, quota *quotaStage) http.Handler {
	g.useIdempotent()
	s := &idempotentStage{g.idempotency, g.report, next}
	name, stage := "Idempotent", StageIdempotency
	if quota != nil {
		name, stage = "Quota", StageQuota
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := factsOf(r.Context())
		switch inside := f.insideIdempotent(w, r); {
		case !g.admits(f) || !f.scoped.Load():
			keyed.Free(w, r)
			g.report.misuse(w, r, stage,
				name+" has no Enforce before it; use guard.Enforce(middleware.AnyCaller()) if no scope is needed")
		case inside && quota != nil:
			keyed.Free(w, r)
			g.report.misuse(w, r, StageQuota, "Quota stands inside an Idempotent or another Quota; put it in its place")
		case inside && f.idempotent == s.idempotency:
			next.ServeHTTP(w, r) // the same stage stands outside
		case inside:
			keyed.Free(w, r)
			g.report.misuse(w, r, StageIdempotency, "Idempotent stands inside another Idempotent; "+
				"leave one of them out, or give the route its own by RouteOptions.Idempotency")
		default:
			inner := extend(r.Context())
			inner.idempotent, inner.repeatable, inner.claim = s.idempotency, r, nil // not those of an outer request
			if inner.response == nil {
				inner.response = new(exchange) // the caller came by WithCaller, without RequestID
			}
			if quota != nil {
				inner = quota.enter(inner, r)
			}
			s.handle(inner, w, r)
		}
	})
}

// Quota is [Guard.Idempotent] for operations that use units, which are positive:
// it counts them and answers 403 for an operation that the quotas of Options.Quota
// do not allow; see [QuotaOptions]. It stands in place of Idempotent, and has the
// same rules; an Idempotent inside it does nothing. Requests of all methods are
// counted. It panics if there is no quota, or one that is less than the units.
func (g *Guard) Quota(units int64) func(http.Handler) http.Handler {
	if units <= 0 {
		panic(fmt.Sprintf("middleware: Quota: an operation uses %d units; they must be positive", units))
	}
	if !g.options.Quota.limits() {
		panic("middleware: Quota: there is no quota in Options.Quota")
	}
	if q := g.quotas.tooSmall(units); q != nil {
		panic(fmt.Sprintf("middleware: Quota: %d units are more than the quota %q allows", units, q.Name))
	}
	g.noQuota.Store(false)
	s := &quotaStage{quotas: g.quotas, units: units}
	return func(next http.Handler) http.Handler { return g.idempotent(next, s) }
}

// warnUnused warns, once for each stage, of a request that has passed a Guard
// without a stage which its options configure. It is called at the end: some
// routers apply a stage anew for each request.
func (g *Guard) warnUnused(w http.ResponseWriter, r *http.Request) {
	if g.noRateLimit.Load() && g.noRateLimit.CompareAndSwap(true, false) {
		g.report.logWith(w, r).Warn("middleware: Options.RateLimit has limits, and nothing counts requests: " +
			"the Guard's RateLimit has not been used so far")
	}
	if g.noQuota.Load() && g.noQuota.CompareAndSwap(true, false) {
		g.report.logWith(w, r).Warn("middleware: Options.Quota has quotas, and nothing counts units: " +
			"the Guard's Quota has not been used so far")
	}
	if g.noIdempotent.Load() && len(r.Header["Idempotency-Key"]) > 0 &&
		slices.Contains(g.idempotency.Methods, r.Method) && g.noIdempotent.CompareAndSwap(true, false) {
		g.report.logWith(w, r).Warn("middleware: an Idempotency-Key was ignored: " +
			"the Guard's Idempotent has not been used so far, and Options.Idempotency is not Off")
	}
}
