// Package middleware gives a net/http server the contract of an API with secret
// keys: a request id on every response, authentication, scopes, rate limits, quotas
// and idempotent creates.
//
//	keys, issuer := issuing.InMemory(keystore.Service{})
//	api := middleware.NewAPI(keys, middleware.Options{RateLimit: middleware.PerOrganization("100-S")})
//
//	var tasks atomic.Int64
//	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
//		func(w http.ResponseWriter, r *http.Request) {
//			caller := middleware.CallerFrom(r.Context())
//			w.WriteHeader(http.StatusCreated)
//			fmt.Fprintf(w, "task %d of %s", tasks.Add(1), caller.Organization())
//		})
//
// The issuer makes the keys. The api is an http.Handler: without an active key it
// answers 401, over the limit 429, without the scope 403. A retry
// with the same Idempotency-Key gets the response of the first request.
//
// Its main types are three.
//
//   - [API] is the whole contract as one http.Handler, with the order of the
//     stages and the routing decided.
//   - [Guard] has each stage as a func(http.Handler) http.Handler, for any
//     router.
//   - [keystore.Caller] is who calls: [CallerFrom] gives it to the handlers.
//
// An API and a Guard take the same [Options]. [Hooks] change the log and the
// form of refusals, and are told of each response by one [Event]. A handler
// writes its own refusals by [WriteProblem], and asks for scopes that only it
// knows by [Allow].
//
// Options.Quota says how many units may be used, RouteOptions.Units or
// [Guard.Quota] what an operation uses, and [AddUnits] what its handler finds out.
// An operation is a request with an Idempotency-Key and its repeats. It is charged
// once, if its response is 2xx or 3xx or its outcome is not known. Over the quota
// it gets 403; a repeat asks no quota. See [QuotaOptions].
//
// With a Guard, keep these rules:
//
//   - RequestID MUST be the outermost stage.
//   - Authenticate MUST stand before Enforce, and before a RateLimit that
//     counts by organization or key.
//   - Enforce MUST stand on every route behind Authenticate: the success of
//     another is refused with 500. It stands before Idempotent, never inside it:
//     a stored reply must not reach a key that may not see it.
//   - RateLimit SHOULD stand before Idempotent.
//   - Quota stands in place of Idempotent where units are counted.
//   - Compression and http.TimeoutHandler: outside Idempotent and inside
//     RequestID.
//
// A stage that misses what it needs answers every request with 500 and says in
// the log what is missing. Mistakes that can be seen at construction panic
// there; [Options.Validate] returns them.
//
// What the stages find out about a request is in its context. What they share
// about a response is in its writer, which has the same optional interfaces as
// the server's writer (http.Flusher, http.Hijacker, io.ReaderFrom,
// http.Pusher). With an Idempotency-Key the response is held in memory until it
// is saved or begins to stream; its writer is only an http.Flusher.
//
// Words that this package uses in one sense:
//
//   - A key is an API key. An Idempotency-Key is always named so.
//   - A tenant is an organization in one environment, production or sandbox.
//     Limits and replies belong to it.
//   - A refusal is a response of a stage in place of the handler's. It is
//     application/problem+json (RFC 9457).
//   - A keyed request has an Idempotency-Key, and its method is one of
//     [IdempotencyOptions].Methods.
//   - A reply is what is stored of a response.
//   - A repeat is another request with the same Idempotency-Key. A repeat that
//     gets the reply is a replay.
//
// The path of a request is in path.go, the table of refusals in internal/codes.
package middleware
