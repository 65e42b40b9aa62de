// Package middleware gives a net/http server the contract of an API with secret
// keys: a request id on every response, authentication, scopes, rate limits and
// idempotent creates.
//
// [API] is all of it as one http.Handler. Each stage is also a piece by itself, a
// func(http.Handler) http.Handler for any router, and each has one file. The
// listing of this package is the path of a request:
//
//	requestid.go    RequestID         every response carries one id
//	recover.go      Recover           500 for a panic, never half a response
//	throttle.go     ThrottleFailures  429 for an address that tries keys
//	auth.go         Authenticate      401, or whose request it is
//	ratelimit.go    RateLimit         429 with an honest Retry-After
//	scope.go        RequireScope      403, or a scope decision
//	idempotency.go  Idempotency       the original response for a repeat
//
// Whoever puts pieces together keeps these rules:
//
//   - RequestID MUST be the outermost.
//   - Authenticate MUST stand before RequireScope, and before a RateLimit that
//     counts by organization or key.
//   - RequireScope MUST stand before Idempotency, with [AnyKey] where no scope is
//     needed: a stored reply must not reach a key that may not see it.
//   - RateLimit SHOULD stand before Idempotency.
//   - Compression and http.TimeoutHandler: outside Idempotency and inside
//     RequestID.
//
// A stage that misses what it needs answers every request with 500 and says in
// the log what is missing. Mistakes that can be seen at construction panic there.
//
// Refusals are application/problem+json (RFC 9457); problem.go has the one table
// of them, and [Hooks] the place to replace their form. A handler learns who
// calls from [PrincipalFrom], and its own refusals look the same by
// [WriteProblem].
//
// All stages of a request share one context value, one copy of the request and
// one response writer. The writer shows exactly the optional interfaces of the
// one below it (http.Flusher, http.Hijacker, io.ReaderFrom, http.Pusher), except
// for a request with an Idempotency-Key, whose response is held back until it is
// saved.
package middleware
