package middleware

import (
	"net/http"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// ThrottleOptions configure [ThrottleFailures].
type ThrottleOptions struct {
	ClientIP ClientIP
	Hooks    *Hooks
}

// ThrottleFailures limits how many requests with a wrong API key one client
// address may send (one /64 for IPv6). It MUST stand before [Authenticate],
// which does the counting; behind it, every request gets 500. A failure is
// reserved before the key is looked up and given back unless the key was wrong. An
// address over its limit gets 429 without a call of the store, but a live key that
// a keystore.Cached remembers passes all the same, so nobody can lock out somebody
// else's key that is in use. Requests without credentials are not counted.
//
// The counters live in this process. It panics when the limit is not valid.
func ThrottleFailures(limit ratelimit.Limit, o ThrottleOptions) func(http.Handler) http.Handler {
	t := &throttle{clientIP: o.ClientIP, policy: ratelimit.Policy{Name: "failures", Limit: limit}, counters: ratelimit.NewMemory()}
	if err := t.policy.Validate(); err != nil {
		panic("middleware: ThrottleFailures: " + err.Error())
	}
	return func(next http.Handler) http.Handler { return &throttling{t, o.Hooks, pieceOf(next)} }
}

type throttling struct {
	*throttle
	hooks     *Hooks
	following piece
}

func (h *throttling) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *throttling) serve(s *state, w http.ResponseWriter, r *http.Request) {
	s.heed(h.hooks)
	if s.key != nil {
		s.misuse(w, r, StageAuth, "ThrottleFailures stands behind Authenticate, where it counts nothing")
		return
	}
	s.throttle = h.throttle
	h.following.serve(s, w, r)
}

type throttle struct {
	clientIP ClientIP
	policy   ratelimit.Policy
	counters *ratelimit.Memory
}

// reserve takes one failure from the client's budget, unless it is spent: then it
// says so in refusal.
func (t *throttle) reserve(s *state, r *http.Request, refusal *Problem) bool {
	s.takes[0] = ratelimit.Take{Policy: &t.policy, Bucket: t.clientIP.bucket(r), Cost: 1}
	d, err := t.counters.Take(s, s.takes[:1])
	switch {
	case err != nil:
		*refusal = problem(codeRateStore)
	case !d.Allowed:
		*refusal = problem(codeTooManyFailures)
		refusal.RetryAfter = d.Wait()
		refusal.Policy = t.policy.Name
	}
	return err == nil && d.Allowed
}

// refund gives back what reserve has just taken.
func (t *throttle) refund(s *state) { t.counters.Refund(s.takes[0]) }
