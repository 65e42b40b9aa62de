package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/ratefields"
	"github.com/sallyport-go/sallyport/middleware/internal/slots"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// RateLimitOptions say how many requests are let through. The limits of a
// request, in the order in which header fields tell of them, are Organization or
// Sandbox, Key, RouteOptions.Policy, Client, and last Concurrent. [Options].Failures
// counts wrong keys alone.
//
// The policies, which are all but Concurrent, are decided together: all of them
// admit a request, or none is charged. A nil policy limits nothing, but for
// Sandbox. Each must have a name of its own. A request without a caller has
// Client alone.
type RateLimitOptions struct {
	// Store keeps the counters. It is required as soon as there is a policy. A
	// store outside the process belongs behind a ratelimit.Failover, which
	// bounds how long it may take; ratelimitredis has one.
	Store ratelimit.Store

	// Organization limits each tenant: an organization in one environment.
	Organization *ratelimit.Policy
	// Sandbox limits each sandbox tenant in place of Organization; nil means
	// Organization.
	Sandbox *ratelimit.Policy
	// Key limits each API key with its children, and each subject that has none.
	Key *ratelimit.Policy
	// Client limits each client address, an IPv6 address as its /64.
	Client *ratelimit.Policy

	// Plan, when set, chooses the policies of a caller: one in place of
	// Organization and Sandbox, the other in place of Key. A nil policy means
	// theirs; ratelimit.Unlimited means none. The client gets 503 for an error,
	// for a policy that is not valid, and for two nil ones if the options have
	// none for the caller either. Plan is called for every request and must be
	// quick.
	Plan func(context.Context, *keystore.Caller) (organization, key *ratelimit.Policy, err error)

	// Concurrent is how many requests a tenant may have in progress at once in
	// this process, repeats that wait among them; 0 is no limit. A request that is
	// refused for it was charged to the policies. Its Retry-After is a hint: nobody
	// knows when a request in progress will end.
	Concurrent int

	// Fields are the header fields that tell clients what is left: [FieldsDraft11]
	// or [FieldsGitHub]; "" adds none. They tell of no report-only policy.
	Fields string
}

// Values of [RateLimitOptions].Fields.
const (
	// FieldsDraft11 are RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11. The body of a 429 has the type
	// quota-exceeded of the draft. A later draft will be a constant of its own.
	FieldsDraft11 = "draft-11"
	// FieldsGitHub are X-RateLimit-Limit, -Remaining, -Used, -Reset and -Resource,
	// as GitHub's REST API has them. They tell of one policy of the innermost
	// RateLimit: the one that refused, or else has the smallest share of its burst
	// left. Resource is its name and Limit its burst. Reset is in Unix seconds:
	// when the request may be repeated after a refusal, else when nothing is used.
	FieldsGitHub = "github"
)

// PerOrganization limits each tenant under the policy name "organization":
// "100-S" is a hundred requests a second, as [ratelimit.Parse] reads it. It
// panics if limit is not one. The counters are in this process; several
// replicas share a Store that is set in its place.
func PerOrganization(limit string) RateLimitOptions {
	return RateLimitOptions{Store: &ratelimit.Memory{},
		Organization: &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse(limit)}}
}

func (o RateLimitOptions) fixed() []*ratelimit.Policy {
	return []*ratelimit.Policy{o.Organization, o.Sandbox, o.Key, o.Client}
}

func (o RateLimitOptions) validate() error {
	var m mistakes
	names := map[string]bool{}
	for i, p := range o.fixed() {
		if p == nil {
			continue
		}
		m = append(m, p.Validate()) // Join drops nil
		// Organization and Sandbox never apply to one request.
		m.when(names[p.Name] && i != 1, "two policies are named %q", p.Name)
		names[p.Name] = true
	}
	m.when(o.Store == nil && (len(names) > 0 || o.Plan != nil), "there is a policy or a Plan, and Store is nil")
	m.when(o.Store != nil && arguments.Absent(o.Store), "the store is a nil %T", o.Store)
	m.when(o.Concurrent < 0, "the limit Concurrent is negative")
	m.when(o.Fields != "" && o.Fields != FieldsDraft11 && o.Fields != FieldsGitHub, "unknown Fields %q", o.Fields)
	return errors.Join(m...)
}

// limiter is RateLimitOptions made ready.
type limiter struct {
	RateLimitOptions
	proxies     *proxies
	concurrency *slots.Slots
	limited     *Problem // of a request over a policy
	report      *reporter
	doubled     atomic.Bool // the log says that a request is charged twice
}

func newLimiter(o RateLimitOptions, p *proxies, report *reporter) *limiter {
	limited := *problems[codes.RateLimited]
	limited.quota = o.Fields == FieldsDraft11
	l := &limiter{RateLimitOptions: o, proxies: p, limited: &limited, report: report}
	if l.Concurrent > 0 {
		l.concurrency = slots.New(l.Concurrent)
	}
	return l
}

// limits reports whether there is a limit for every request.
func (l *limiter) limits() bool { return l.counts() || l.Concurrent > 0 }

// needsCaller reports whether a limit needs to know the caller.
func (l *limiter) needsCaller() bool {
	return l.Organization != nil || l.Sandbox != nil || l.Key != nil || l.Plan != nil || l.Concurrent > 0
}

// routeLimit is what a route says of its limits.
type routeLimit struct {
	policy *ratelimit.Policy // of its own, or nil
	cost   int64             // 0 means 1
}

// check charges a request under facts to all its limits. If they admit it, the
// caller calls end. x is the exchange of w, or nil.
func (l *limiter) check(f *facts, x *exchange, w http.ResponseWriter, r *http.Request, route routeLimit) denial {
	if d := l.charge(f, x, w, r, route); d.problem != nil {
		return d
	}
	if l.concurrency != nil && f.caller != nil && !l.concurrency.Acquire(f.caller.Tenant()) {
		return denied(codes.TooManyConcurrent)
	}
	return denial{}
}

func (l *limiter) end(c *keystore.Caller) {
	if l.concurrency != nil && c != nil {
		l.concurrency.Release(c.Tenant())
	}
}

// charge charges a request to its policies.
func (l *limiter) charge(f *facts, x *exchange, w http.ResponseWriter, r *http.Request, route routeLimit) denial {
	if route.policy == ratelimit.Unlimited {
		return denial{}
	}
	var room []ratelimit.Charge
	if x != nil {
		room = x.room[:0]
		if outer, _ := x.charged.(*limiter); outer.shares(l) && l.doubled.CompareAndSwap(false, true) {
			l.report.logWith(w, r).Warn("middleware: RateLimit stands twice in the path of a request, with the same " +
				"policies and Store, so each request is charged twice; leave one of them out")
		}
		x.charged = l
	}
	charges, err := l.charges(f, room, r, route)
	if err != nil {
		l.report.fault(w, r, "RateLimit.Plan gave no usable policy", err)
		return denied(codes.RateStore)
	}
	n := enforced(charges)
	if n > 0 {
		if d := l.take(f, x, w, r, charges[:n]); d.problem != nil {
			return d
		}
	}
	if n < len(charges) {
		l.observe(f, x, w, r, charges[n:])
	}
	return denial{}
}

// shares reports whether both limit by the same policies in one store. l may be
// nil.
func (l *limiter) shares(m *limiter) bool {
	return l != nil && reflect.ValueOf(l.Store).Comparable() && l.Store == m.Store &&
		(l.Plan != nil && reflect.ValueOf(l.Plan).Pointer() == reflect.ValueOf(m.Plan).Pointer() ||
			slices.ContainsFunc(l.fixed(), func(p *ratelimit.Policy) bool {
				return p != nil && slices.Contains(m.fixed(), p)
			}))
}

// take makes the charges that policies may refuse.
func (l *limiter) take(f *facts, x *exchange, w http.ResponseWriter, r *http.Request, all []ratelimit.Charge) denial {
	d, err := l.decide(f, all)
	if errors.Is(err, ratelimit.ErrCost) {
		l.report.fault(w, r, "a route costs more than the burst of a policy, so requests are refused", err)
		return explained(codes.BadRequest, "The request asks for more at once than its rate limit ever allows. Split it.")
	}
	if err != nil {
		l.report.fault(w, r, "the counter store does not answer", err)
		return denied(codes.RateStore)
	}
	switch l.Fields {
	case FieldsDraft11:
		ratefields.SetDraft11(w.Header(), all, d)
	case FieldsGitHub:
		ratefields.SetGitHub(w.Header(), all, d)
	}
	policy, left := all[d.Limiting].Policy, d.States[d.Limiting]
	x.observed().noteLimit(policy, left)
	if !d.Allowed {
		return denial{l.limited, policy.Name, max(left.Wait, 1)}
	}
	return denial{}
}

// decide asks the store, and reports an answer that names none of the charges.
func (l *limiter) decide(f *facts, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	d, err := l.Store.Take(detached{f}, charges)
	if err == nil && (d.Limiting < 0 || d.Limiting >= len(charges)) {
		err = fmt.Errorf("the store broke its contract: Limiting is %d, and there are %d charges", d.Limiting, len(charges))
	}
	return d, err
}

// enforced moves the charges of report-only policies to the end, and returns
// how many stand before them. Otherwise the order stays.
func enforced(charges []ratelimit.Charge) (n int) {
	for i := range charges {
		if charges[i].Policy.ReportOnly {
			continue
		}
		if n < i {
			c := charges[i]
			copy(charges[n+1:i+1], charges[n:i])
			charges[n] = c
		}
		n++
	}
	return n
}

// observe charges report-only policies. It does so in a Take of its own, so that
// they cannot affect the decision of the others.
func (l *limiter) observe(f *facts, x *exchange, w http.ResponseWriter, r *http.Request, all []ratelimit.Charge) {
	d, err := l.decide(f, all)
	n := x.observed()
	switch {
	case errors.Is(err, ratelimit.ErrCost):
		n.noteReported(codes.BadRequest, "")
	case err != nil:
		l.report.fault(w, r, "the counter store does not answer for a report-only limit", err)
	case !d.Allowed:
		n.noteLimit(all[d.Limiting].Policy, d.States[d.Limiting])
		n.noteReported(codes.RateLimited, "")
	}
}

// charges lists what the request spends. A counter belongs to a policy's name,
// its limit and a bucket: a prefix keeps a route's policy, and a key's, apart
// from another of a plan that has the same name.
func (l *limiter) charges(
	f *facts, charges []ratelimit.Charge, r *http.Request, route routeLimit,
) ([]ratelimit.Charge, error) {
	spend := func(policy *ratelimit.Policy, bucket string) {
		charges = append(charges, ratelimit.Charge{Policy: policy, Bucket: bucket, Cost: max(route.cost, 1)})
	}
	if c := f.caller; c != nil {
		organization, key, err := l.policies(detached{f}, c)
		if err != nil {
			return nil, err
		}
		if organization != nil {
			spend(organization, c.Tenant())
		}
		switch {
		case key == nil:
		case l.Plan != nil:
			spend(key, "key "+clientOf(c))
		default:
			spend(key, clientOf(c))
		}
		if route.policy != nil {
			spend(route.policy, "route "+c.Tenant())
		}
	}
	if l.Client != nil {
		spend(l.Client, l.proxies.bucket(r))
	}
	return charges, nil
}

// clientOf names the key or the subject, for a limit of each.
func clientOf(c *keystore.Caller) string {
	if id := c.RootID(); id != "" {
		return id
	}
	// The length keeps organizations apart whose names have spaces.
	return "subject " + strconv.Itoa(len(c.Subject())) + ":" + c.Subject() + " " + c.Tenant()
}

// policies returns those of a caller; nil for none.
func (l *limiter) policies(ctx context.Context, c *keystore.Caller) (organization, key *ratelimit.Policy, err error) {
	organization, key = l.Organization, l.Key
	if l.Sandbox != nil && c.Environment() == keystore.Sandbox {
		organization = l.Sandbox
	}
	if l.Plan == nil {
		return organization, key, nil
	}
	planned, plannedKey, err := l.Plan(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	organization, err = chosen(planned, organization, ratelimit.Unlimited)
	key, keyErr := chosen(plannedKey, key, ratelimit.Unlimited)
	if planned == nil && plannedKey == nil && organization == nil && key == nil {
		err = errors.New("it named none, and there is no other; return ratelimit.Unlimited for a caller without a limit")
	}
	return organization, key, cmp.Or(err, keyErr)
}

// chosen returns the policy that a plan names, or else the usual one; nil for
// unlimited.
func chosen[P interface {
	comparable
	Validate() error
}](planned, usual, unlimited P) (none P, err error) {
	switch planned {
	case none:
		return usual, nil
	case unlimited:
		return none, nil
	}
	return planned, planned.Validate()
}

// counts reports whether there is a policy for every route.
func (o RateLimitOptions) counts() bool {
	return o.Plan != nil || slices.ContainsFunc(o.fixed(), func(p *ratelimit.Policy) bool { return p != nil })
}

// validRoute returns what is wrong with the limit or the cost of a route.
func (l *limiter) validRoute(o routeLimit) error {
	switch {
	case o.cost < 0:
		return errors.New("RouteOptions.Cost is negative")
	case o.policy == ratelimit.Unlimited && o.cost == 0:
		return nil
	case o.cost > 0 && o.policy == nil && !l.counts():
		return errors.New("RouteOptions.Cost is set and no policy applies to the route")
	case o.policy != nil && l.Store == nil:
		return errors.New("the route has a rate limit and RateLimit.Store is nil")
	case o.policy != nil:
		if err := o.policy.Validate(); err != nil {
			return named("RouteOptions.Policy", err)
		}
	}
	policies := l.fixed() // Organization, Sandbox, Key, Client
	for i, p := range append(policies, o.policy) {
		own := i == len(policies)
		replaced := i < 3 && l.Plan != nil
		switch {
		case p == nil:
		case o.cost > p.Limit.Capacity() && (own || !replaced && !p.ReportOnly):
			return fmt.Errorf("the cost is more than the burst of policy %q, so no request under it would ever pass", p.Name)
		case o.policy != nil && !own && p.Name == o.policy.Name:
			return fmt.Errorf("the route's rate limit has the name %q of one of the API's", p.Name)
		}
	}
	return nil
}
