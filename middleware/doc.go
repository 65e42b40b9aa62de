// Package middleware gives a net/http server the contract of an API with secret
// keys: a request id on every response, authentication, scopes, rate limits and
// idempotent creates.
//
// [API] is all of it as one http.Handler. A [Guard] has each stage as a
// func(http.Handler) http.Handler, for any router. Both take the same
// [Options]. The path of a request through an API is path.go, the stages of a
// Guard are pieces.go; what each stage decides has one file:
//
//	requestid.go    RequestID     every response carries one id
//	recover.go      Recover       500 for a panic; after the first byte, an abort
//	auth.go         Authenticate  401, or the caller; apikey.go: API keys; throttle.go: 429 for an address that tries them
//	ratelimit.go    RateLimit     429 with Retry-After
//	scope.go        Require       403 if the key lacks a scope
//	idempotency.go  Idempotent    the original response for a retry; keyedcall.go: one such request
//
// With a Guard, keep these rules:
//
//   - RequestID MUST be the outermost stage.
//   - Authenticate MUST stand before Require, and before a RateLimit that
//     counts by organization or key.
//   - Require or Enforce MUST stand before Idempotent, and never
//     inside it: a stored reply must not reach a key that may not see it.
//   - RateLimit SHOULD stand before Idempotent.
//   - Compression and http.TimeoutHandler: outside Idempotent and inside
//     RequestID.
//
// A stage that misses what it needs answers every request with 500 and says in
// the log what is missing. Mistakes that can be seen at construction panic
// there; [Options.Validate] returns them.
//
// Refusals are application/problem+json (RFC 9457); internal/codes has the one
// table of them, and [Hooks].Problem replaces their form. A handler learns who
// the caller is from [PrincipalFrom], and writes its own refusals by
// [WriteProblem]. When a response ends, [Hooks].Observe is told of it by one
// [Event].
//
// What the stages find out about a request is in its context. What they share
// about a response is in its writer, which has the same optional interfaces as
// the server's writer (http.Flusher, http.Hijacker, io.ReaderFrom,
// http.Pusher). With an Idempotency-Key the response is held in memory until it
// is saved; its writer is only an http.Flusher.
package middleware
