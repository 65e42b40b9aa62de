package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/meter"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
)

// QuotaOptions say how many units may be used. [RouteOptions].Units and
// [Guard.Quota] say what an operation uses: a request with an Idempotency-Key and
// all its repeats. The store of Idempotency.Runner counts, and has to be an
// idem.Counter: idem.Memory, or one of packages idemsql and idempgx.
//
// An operation is charged exactly if its response is 2xx or 3xx. All others cost
// nothing, but for one whose outcome is not known. A repeat costs nothing and asks
// no quota, and an attempt that takes over asks none. A request without an
// Idempotency-Key is charged before its handler runs, whatever becomes of it.
//
// The units of the route decide whether an operation may begin. If they do not
// suffice, the client gets 403 quota_exceeded, and may use the Idempotency-Key
// again. If they would suffice but for operations that are in progress, it gets
// 503 too_many_in_flight. Where no quota can be asked, it gets 503
// idempotency_store_unavailable. In joined mode the quota is asked while the
// transaction is open, so the pool of the database needs a second connection. A nil
// quota limits nothing. Each must have a name of its own.
type QuotaOptions struct {
	// Organization limits each tenant: an organization in one environment.
	Organization *idem.Quota
	// Key limits each API key with its children, and each subject that has none.
	Key *idem.Quota

	// Plan, when set, chooses the quotas of a caller: one in place of Organization,
	// the other in place of Key. A nil quota means theirs; idem.Unlimited means
	// none. The client gets 503 for an error, for a quota that is not valid, and for
	// two nil ones if the options have none either. Plan is called for every
	// operation that begins, after its Idempotency-Key is claimed, and must be quick.
	// It may make a Quota each time: what is used belongs to the account, not to it.
	Plan func(context.Context, *keystore.Caller) (organization, key *idem.Quota, err error)
}

func (o QuotaOptions) limits() bool { return o.Organization != nil || o.Key != nil || o.Plan != nil }

func (o QuotaOptions) names(name string) bool {
	return slices.ContainsFunc([]*idem.Quota{o.Organization, o.Key}, func(q *idem.Quota) bool {
		return q != nil && q.Name == name
	})
}

// tooSmall returns a quota that refuses an operation of so many units whatever was
// used, unless a plan may replace it; or nil.
func (o QuotaOptions) tooSmall(units int64) *idem.Quota {
	for _, q := range []*idem.Quota{o.Organization, o.Key} {
		if q != nil && q.Units < units && !q.ReportOnly && o.Plan == nil {
			return q
		}
	}
	return nil
}

// noCounter says which stores count.
const noCounter = "does not count units; idem.Memory and the stores of packages idemsql and idempgx do"

func (o QuotaOptions) validate(replies IdempotencyOptions) error {
	var m mistakes
	if o.Organization != nil {
		m = append(m, o.Organization.Validate())
	}
	if o.Key != nil {
		m = append(m, o.Key.Validate())
		m.when(o.Organization != nil && o.Organization.Name == o.Key.Name, "two quotas are named %q", o.Key.Name)
	}
	m.when(o.limits() && replies.Off, "units are counted in the store of Idempotency.Runner, and Idempotency is Off")
	if o.limits() && replies.Runner != nil {
		_, counts := replies.Runner.Store().(idem.Counter)
		m.when(!counts, "the store of Idempotency.Runner, a %T, "+noCounter, replies.Runner.Store())
	}
	return errors.Join(m...)
}

// of returns the quotas of a caller; nil for none.
func (o QuotaOptions) of(ctx context.Context, c *keystore.Caller) (organization, key *idem.Quota, err error) {
	if o.Plan == nil {
		return o.Organization, o.Key, nil
	}
	planned, plannedKey, err := o.Plan(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("QuotaOptions.Plan: %w", err)
	}
	organization, err = chosen(planned, o.Organization, idem.Unlimited)
	key, keyErr := chosen(plannedKey, o.Key, idem.Unlimited)
	if planned == nil && plannedKey == nil && organization == nil && key == nil {
		err = errors.New("QuotaOptions.Plan named no quota, and there is no other; " +
			"return idem.Unlimited for a caller without one")
	}
	return organization, key, cmp.Or(err, keyErr)
}

// AccountOf returns the account that a caller's units are charged to. Its Names are
// "units", the environment, the organization, the id of the API key or "subject "
// and the subject that has none, and for a child the id of the child. So the third
// of its Within is the tenant's, the fourth the key's. For nil it is "". A route
// with a Quota of its own has the Quota's name in place of "units".
func AccountOf(c *keystore.Caller) idem.Account { return accountOf(apiAccount, c) }

const apiAccount = "units"

func accountOf(name string, c *keystore.Caller) idem.Account {
	if c.Tenant() == "" {
		return ""
	}
	names := []string{name, string(c.Environment()), c.Organization(), c.RootID()}
	if names[3] == "" {
		names[3] = "subject " + c.Subject()
	} else if names[3] != c.KeyID() {
		names = append(names, c.KeyID())
	}
	return idem.NewAccount(names...)
}

// AddUnits adds what a handler finds out to the units of its request, whose context
// is given, such as the tokens of a model. They are charged with those of the
// route and refused by no quota: if they go over it, the next operation is refused.
//
// An error says that they do not count: there are none for the request, because
// its route has none (Units of at least 1) or it has no caller, n is negative, or the units are charged
// already, which is when the handler has returned, and in joined mode when its
// response begins to stream.
func AddUnits(ctx context.Context, n int64) error {
	if f := factsOf(ctx); f != nil && f.units != nil {
		return f.units.Add(n)
	}
	return errors.New("middleware: AddUnits: no units are counted for this request")
}

// quotas are QuotaOptions made ready.
type quotas struct {
	QuotaOptions
	counter idem.Counter
	meter   *meter.Meter
	timeout time.Duration
	report  *reporter
}

// newQuotas returns nil if the store of the options does not count.
func newQuotas(o Options, report *reporter) *quotas {
	counter, counts := o.Idempotency.Runner.Store().(idem.Counter)
	switch {
	case counts:
		return &quotas{o.Quota, counter, meter.New(counter), o.Idempotency.Runner.Options().Timeout, report}
	case o.Quota.limits():
		panic(fmt.Sprintf("middleware: Options.Quota: the default store of replies, a %T, "+noCounter,
			o.Idempotency.Runner.Store()))
	}
	return nil
}

// quotaStage is the stage of one route or chain.
type quotaStage struct {
	*quotas
	units int64
	own   *idem.Quota // of the route, in place of those of the options; or nil
}

// routeStage returns the stage of a route, whose Idempotent is repeats if it has
// one; or nil if the route is free. There is none without a store that counts.
func (q *quotas) routeStage(units int64, own *idem.Quota, repeats *idempotency) (*quotaStage, error) {
	switch {
	case units < 0:
		return nil, errors.New("RouteOptions.Units is negative")
	case units == 0 && own != nil:
		return nil, errors.New("RouteOptions.Quota is set, and Units is 0")
	case units == 0:
		return nil, nil
	case q == nil:
		return nil, errors.New("RouteOptions.Units is set, and Idempotency is Off or its store " + noCounter)
	case own == nil && !q.limits():
		return nil, errors.New("RouteOptions.Units is set, and neither Options.Quota nor RouteOptions.Quota is")
	case repeats != nil && !sameStore(repeats.Runner.Store(), q.counter):
		return nil, errors.New("RouteOptions.Units is set, and the route's Runner has another store than that of " +
			"Options.Idempotency, which counts the units")
	case own != nil && (own.Name == apiAccount || q.names(own.Name)):
		return nil, fmt.Errorf("RouteOptions.Quota: the name %q is taken by the API's quotas", own.Name)
	case own != nil:
		if err := own.Validate(); err != nil {
			return nil, named("RouteOptions.Quota", err)
		}
	}
	small := q.tooSmall(units)
	if own != nil {
		small = QuotaOptions{Organization: own}.tooSmall(units)
	}
	if small != nil {
		return nil, fmt.Errorf("the units of the route are more than the quota %q allows, so no request would ever pass",
			small.Name)
	}
	return &quotaStage{quotas: q, units: units, own: own}, nil
}

// sameStore reports whether two stores are one, which of values that cannot be
// compared nobody knows.
func sameStore(a, b idem.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// enter returns the facts of a request whose units are counted. Those of one
// without a caller stay as they are.
func (s *quotaStage) enter(f *facts, r *http.Request) *facts {
	if f.caller == nil {
		return f
	}
	inner := &struct {
		facts facts
		units keyed.Units
	}{}
	inner.facts.copy(r.Context(), f)
	u, caller := &inner.units, f.caller
	inner.facts.units, u.Route, u.Counter, u.Timeout = u, s.units, s.counter, s.timeout
	if s.own != nil {
		u.Account = accountOf(s.own.Name, caller)
	} else {
		u.Account = AccountOf(caller)
	}
	var limits []meter.Limit
	u.Hold = func(ctx context.Context, units int64) (h *meter.Hold, v meter.Verdict, err error) {
		if limits == nil {
			limits, err = s.limitsOf(ctx, caller, u.Account)
		}
		if err != nil || len(limits) == 0 {
			return nil, v, err
		}
		return s.meter.Hold(ctx, units, limits)
	}
	return &inner.facts
}

// limitsOf returns the quotas of a caller, who is charged on account a.
func (s *quotaStage) limitsOf(ctx context.Context, c *keystore.Caller, a idem.Account) (all []meter.Limit, err error) {
	organization, key := s.own, (*idem.Quota)(nil)
	if s.own == nil {
		if organization, key, err = s.of(ctx, c); err != nil {
			return nil, err
		}
	}
	within := a.Within()
	if organization != nil {
		all = append(all, meter.Limit{Account: within[2], Quota: organization})
	}
	if key != nil {
		all = append(all, meter.Limit{Account: within[3], Quota: key})
	}
	return all, nil
}

// askQuota holds the units of an operation that is about to begin, or returns why
// it must not.
func askQuota(report *reporter, u *keyed.Units, w http.ResponseWriter, r *http.Request) denial {
	v, err := u.Ask(r.Context())
	if v.Fault != nil {
		report.fault(w, r, "the units that count on a report-only quota are not known", v.Fault)
	}
	switch {
	case err != nil:
		return uncounted(report, w, r, err)
	case v.Refused == nil:
		if v.Reported != nil {
			recordOf(w).noteReported(codes.QuotaExceeded, "")
		}
		return denial{}
	}
	recordOf(w).note(func(e *Event) { e.Burst, e.Remaining = 0, 0 }) // refuse notes the name
	p := refusal(codes.QuotaExceeded)
	switch {
	case v.Held:
		p = problems[codes.TooManyInFlight]
	case u.Route <= v.Refused.Units: // or else no period suffices
		p.ResetsAt = v.Resets
	}
	return denial{problem: p, policy: v.Refused.Name}
}

func uncounted(report *reporter, w http.ResponseWriter, r *http.Request, err error) denial {
	report.fault(w, r, "the units of a request cannot be counted", err)
	return explained(codes.ReplyStore, "The units that the request uses cannot be counted at the moment. "+
		"Nothing was done: retry after the wait.")
}

// serveCharged calls next for a request that has no claim. If units are counted for
// it, they are charged before.
func serveCharged(report *reporter, f *facts, next http.Handler, w http.ResponseWriter, r *http.Request) {
	u := f.units
	if u == nil || !u.Take() {
		f.serve(next, w, r)
		return
	}
	d := askQuota(report, u, w, r)
	if d.problem == nil {
		if err := u.Count(r.Context(), false); err != nil {
			d = uncounted(report, w, r, err)
		}
	}
	if d.problem != nil {
		report.refuse(w, r, StageQuota, d)
		return
	}
	defer chargeRest(report, u, w, r) // after a panic too
	f.serve(next, w, r)
}

// chargeRest charges what is not charged yet, after the handler.
func chargeRest(report *reporter, u *keyed.Units, w http.ResponseWriter, r *http.Request) {
	if err := u.Count(r.Context(), true); err != nil {
		report.fault(w, r, "units that a request has used are not counted", err)
	}
	noteUnits(u, w)
}

func noteUnits(u *keyed.Units, w http.ResponseWriter) {
	recordOf(w).note(func(e *Event) { e.Units = u.Charged() })
}
