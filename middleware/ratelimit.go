package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Limits say how many requests are let through. The policies that apply to a
// request are decided together: all of them admit it, or none is charged. A nil
// policy is no limit; each must have a name of its own.
type Limits struct {
	// Store keeps the counters. It is required as soon as there is a policy. A
	// store outside the process belongs behind a ratelimit.Failover, which bounds
	// how long it may take; ratelimitredis has one.
	Store ratelimit.Store

	// Organization limits each organization, production and sandbox apart.
	Organization *ratelimit.Policy
	// Sandbox, when set, takes the place of Organization for sandbox keys.
	Sandbox *ratelimit.Policy
	// Plan, when set, chooses in place of Organization and Sandbox; nil from it
	// is no limit. It is asked for every request and must be quick.
	Plan func(Principal) *ratelimit.Policy
	// Key limits each API key.
	Key *ratelimit.Policy
	// Client limits each client address, one /64 for IPv6. Alone it needs no
	// Authenticate before it.
	Client   *ratelimit.Policy
	ClientIP ClientIP

	// Concurrent is how many requests an organization and environment may have
	// in progress at once in this process; 0 is no limit. The Retry-After of its
	// refusals is a hint: nobody knows when a request in progress will end.
	Concurrent int

	// FieldsDraft11 adds the fields RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11 to the responses.
	FieldsDraft11 bool

	Hooks *Hooks
}

// PerOrganization limits each organization, production and sandbox apart, under
// the policy name "organization".
func PerOrganization(store ratelimit.Store, limit ratelimit.Limit) Limits {
	return Limits{Store: store, Organization: &ratelimit.Policy{Name: "organization", Limit: limit}}
}

// RateLimit answers 429 with Retry-After for a request over its limits. The wait
// is the shortest after which the same request is admitted if nobody else spends.
//
// [Authenticate] MUST stand before it when a limit is by organization or key;
// without, every request gets 500. It SHOULD stand before [Idempotency], so that a
// refusal is never taken for the operation's response. It panics on a policy that
// is not valid.
func RateLimit(l Limits) func(http.Handler) http.Handler {
	if err := l.validate(); err != nil {
		panic("middleware: RateLimit: " + err.Error())
	}
	return l.stage()
}

func (l Limits) stage() func(http.Handler) http.Handler {
	gate := l.gate()
	return func(next http.Handler) http.Handler {
		return gate.limit(next, RouteLimit{})
	}
}

// limiter is a Limits made ready.
type limiter struct {
	Limits
	concurrency *ratelimit.Concurrency
	faults      faults
}

func (l Limits) gate() *limiter {
	g := &limiter{Limits: l}
	if l.Concurrent > 0 {
		g.concurrency = ratelimit.NewConcurrency(l.Concurrent)
	}
	return g
}

func (l Limits) policies() []*ratelimit.Policy {
	return []*ratelimit.Policy{l.Organization, l.Sandbox, l.Key, l.Client}
}

func (l Limits) validate() error {
	var errs []error
	names := map[string]bool{}
	for i, p := range l.policies() {
		if p == nil {
			continue
		}
		if err := p.Validate(); err != nil {
			errs = append(errs, err)
		}
		// Organization and Sandbox never meet in one request.
		if names[p.Name] && i != 1 {
			errs = append(errs, fmt.Errorf("two policies are named %q", p.Name))
		}
		names[p.Name] = true
	}
	if l.Store == nil && (len(names) > 0 || l.Plan != nil) {
		errs = append(errs, errors.New("Limits.Store is nil"))
	}
	if l.Concurrent < 0 {
		errs = append(errs, errors.New("Limits.Concurrent is negative"))
	}
	return errors.Join(errs...)
}

// needsKey reports whether a limit can be decided for principals alone.
func (l *Limits) needsKey() bool {
	return l.Organization != nil || l.Sandbox != nil || l.Plan != nil || l.Key != nil || l.Concurrent > 0
}

func (l *Limits) none() bool { return !l.needsKey() && l.Client == nil }

// limit guards next. A route's own policy and cost are part of the same decision.
func (l *limiter) limit(next http.Handler, route RouteLimit) http.Handler {
	if l.none() && route.Policy == nil {
		return next
	}
	return &limited{l, route, pieceOf(next)}
}

type limited struct {
	*limiter
	route     RouteLimit
	following piece
}

func (h *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *limited) serve(s *state, w http.ResponseWriter, r *http.Request) {
	s.heed(h.Hooks)
	if !h.admit(s, w, r, h.route) {
		return
	}
	if h.concurrency != nil {
		tenant := s.key.Tenant()
		if !h.concurrency.Acquire(tenant) {
			s.refuse(w, r, StageRateLimit, problem(codeTooManyConcurrent))
			return
		}
		defer h.concurrency.Release(tenant)
	}
	h.following.serve(s, w, r)
}

// admit decides, and answers when it refuses.
func (l *limiter) admit(s *state, w http.ResponseWriter, r *http.Request, route RouteLimit) bool {
	if s.key == nil && (l.needsKey() || route.Policy != nil) {
		s.misuse(w, r, StageRateLimit, "RateLimit counts by organization or key where no Authenticate is before it")
		return false
	}
	takes := l.takes(s, r, route)
	if len(takes) == 0 {
		return true
	}
	ctx := s.contextOf(r)
	d, err := l.Store.Take(ctx, takes)
	if err != nil {
		p := problem(codeRateStore)
		if errors.Is(err, ratelimit.ErrCost) {
			p = problem(codeBadRequest)
			p.Detail = "The request asks for more at once than its rate limit ever allows. Split it."
		} else if ctx.Err() == nil {
			l.faults.log(s, "the rate limit store does not answer", err)
		}
		s.refuse(w, r, StageRateLimit, p)
		return false
	}
	if l.FieldsDraft11 {
		setRateFields(w.Header(), takes, d)
	}
	policy := takes[d.Index].Policy.Name
	if !d.Allowed {
		p := problem(codeRateLimited)
		p.RetryAfter = max(d.Wait(), 1)
		p.Policy = policy
		s.refuse(w, r, StageRateLimit, p)
		return false
	}
	s.pass(StageRateLimit, policy)
	return true
}

// takes lists what the request spends, in the state, so that it costs no
// allocation.
func (l *limiter) takes(s *state, r *http.Request, route RouteLimit) []ratelimit.Take {
	takes := s.takes[:0]
	cost := max(route.Cost, 1)
	if s.key != nil {
		if p := l.organization(s.key); p != nil {
			takes = append(takes, ratelimit.Take{Policy: p, Bucket: s.key.Tenant(), Cost: cost})
		}
		if l.Key != nil {
			takes = append(takes, ratelimit.Take{Policy: l.Key, Bucket: s.key.ID, Cost: cost})
		}
		if route.Policy != nil {
			takes = append(takes, ratelimit.Take{Policy: route.Policy, Bucket: s.key.Tenant(), Cost: cost})
		}
	}
	if l.Client != nil {
		takes = append(takes, ratelimit.Take{Policy: l.Client, Bucket: l.ClientIP.bucket(r), Cost: cost})
	}
	return takes
}

func (l *limiter) organization(key *keystore.Key) *ratelimit.Policy {
	switch {
	case l.Plan != nil:
		return l.Plan(Principal{key})
	case l.Sandbox != nil && key.Environment == keystore.Sandbox:
		return l.Sandbox
	}
	return l.Organization
}
