// Package figures says what the packages for metrics count of a response, and
// what they read of the parts of a server.
package figures

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Response is the labels of a response. Each field has few values: none names
// a key, an organization, a request or what a client can make up.
type Response struct {
	Method      string // [Other] for one that HTTP does not define
	Pattern     string // "" if none matched
	Status      int
	Outcome     string // of middleware.Event, "aborted", or "reported" for one that has ReportedCode and was handled
	Environment string // of the caller, "" for none
}

// DurationBounds are those that the semantic conventions of OpenTelemetry give
// for requests, and CallBounds those for calls of a database, in seconds.
// WaitBounds are for repeats that wait for the first request.
var (
	DurationBounds = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	CallBounds     = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10}
	WaitBounds     = []float64{.025, .1, .5, 1, 2.5, 5, 10, 30}
)

// Limit is the labels of a request that was charged.
type Limit struct{ Policy, Result string }

// Other is the label of what is not listed.
const Other = "_OTHER"

// ResponseOf returns the labels of e.
func ResponseOf(e *middleware.Event) Response {
	r := Response{
		Method: methodOf(e.Method), Pattern: e.Pattern, Status: e.Status,
		Outcome: e.Outcome, Environment: string(e.Caller.Environment()),
	}
	switch {
	case e.Aborted && !r.Refused():
		r.Outcome = "aborted" // a status that was sent before says nothing
	case e.ReportedCode != "" && e.Stage == middleware.StageHandler:
		r.Outcome = "reported"
	}
	return r
}

// Folded returns the labels of a response beyond the room of a [Cache].
func (r Response) Folded() Response {
	return Response{Method: r.Method, Pattern: Other, Status: r.Status / 100 * 100, Outcome: Other}
}

// Folded returns the labels of a limit beyond the room of a [Cache].
func (l Limit) Folded() Limit { return Limit{Other, l.Result} }

// Failure is the labels of a response that failed on our side. Kind is
// "aborted", "upstream" for the 502 and 504 of a handler, or "error".
type Failure struct{ Kind, Outcome string }

// Failure returns the labels of a failure; ok is false for any other response.
func (r Response) Failure() (f Failure, ok bool) {
	f = Failure{"error", r.Outcome}
	switch {
	case r.Outcome == "aborted":
		f.Kind = "aborted"
	case !r.Refused() && (r.Status == http.StatusBadGateway || r.Status == http.StatusGatewayTimeout):
		f.Kind = "upstream"
	case r.Status < 500 && r.Outcome != codes.Internal: // a panic after the first byte
		return Failure{}, false
	}
	return f, true
}

// Failures returns all labels of failures.
func Failures() []Failure {
	all := []Failure{{"aborted", "aborted"}}
	for _, outcome := range []string{"handled", "executed", "replayed", "reported"} {
		all = append(all, Failure{"error", outcome}, Failure{"upstream", outcome})
	}
	for code, row := range codes.Table {
		if row.Status == http.StatusInternalServerError || row.Status == http.StatusServiceUnavailable {
			all = append(all, Failure{"error", code})
		}
	}
	return all
}

// Refused reports whether a stage refused the request, so that the outcome is
// the code of the refusal.
func (r Response) Refused() bool {
	_, ok := codes.Table[r.Outcome]
	return ok
}

// LimitOf returns the labels of the rate limit that decided on e; ok is false if
// none was asked, and after a quota has refused, of which e has the name.
func LimitOf(e *middleware.Event) (l Limit, ok bool) {
	l = Limit{e.Policy, "admitted"}
	switch {
	case e.Stage == middleware.StageQuota:
		return Limit{}, false
	case e.Outcome == codes.RateStore:
		l.Result = "failed"
	case e.Outcome == codes.RateLimited:
		l.Result = "refused"
	case e.ReportedCode == codes.RateLimited:
		l.Result = "reported"
	}
	return l, e.Policy != "" || l.Result == "failed"
}

// IdempotencyOutcomes are the values of [IdempotencyOf].
var IdempotencyOutcomes = []string{"executed", "replayed", "waited", "conflict", "mismatch", "not_retained", "unknown"}

// IdempotencyOf returns what became of a request with an idempotency key: "" if
// it had none, or was refused before its key was looked up.
func IdempotencyOf(e *middleware.Event) string {
	switch e.Outcome {
	case "replayed":
		if e.Waited > 0 {
			return "waited"
		}
		return e.Outcome
	case codes.InProgress:
		return "conflict"
	case codes.KeyReused:
		return "mismatch"
	case codes.NotRetained:
		return "not_retained"
	case codes.OutcomeUnknown, codes.CommitUnknown, codes.Interrupted:
		return "unknown"
	}
	if e.Executed {
		return "executed"
	}
	return ""
}

func methodOf(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead,
		http.MethodOptions, http.MethodConnect, http.MethodTrace, "QUERY":
		return m
	}
	return Other
}

// Route returns the pattern without its method.
func (r Response) Route() string {
	if method, path, ok := strings.Cut(r.Pattern, " "); ok && !strings.Contains(method, "/") {
		return strings.TrimLeft(path, " \t")
	}
	return r.Pattern
}

// Expected returns the labels whose series start at 0, so that the first
// response of a kind is an increase: for each route and environment a success
// and a 429. Failures have series of their own.
func Expected(routes []middleware.Route) []Response {
	var all []Response
	for _, route := range routes {
		success := Response{Status: http.StatusOK, Outcome: "handled"}
		if !route.Options.Idempotency.Off {
			success = Response{Status: http.StatusCreated, Outcome: "executed"}
		}
		for _, r := range []Response{success, {Status: http.StatusTooManyRequests, Outcome: codes.RateLimited}} {
			for _, env := range []keystore.Environment{keystore.Production, keystore.Sandbox} {
				r.Method, r.Environment = methodOf(route.Method), string(env)
				r.Pattern = strings.TrimSpace(route.Method + " " + route.Path)
				all = append(all, r)
			}
		}
	}
	return all
}

// ExpectedLimits is [Expected] for the policies of all requests. Those of a plan
// or of a route are known by their first request.
func ExpectedLimits(o middleware.RateLimitOptions) []Limit {
	var all []Limit
	for _, p := range []*ratelimit.Policy{o.Organization, o.Sandbox, o.Key, o.Client} {
		if p != nil {
			all = append(all, Limit{p.Name, "admitted"}, Limit{p.Name, "refused"})
		}
	}
	return all
}

// Parts are the parts of a server that have figures of their own. Each may be
// nil.
type Parts struct {
	Keys     *keystore.Cached
	Replies  *idem.Runner
	Counters interface {
		Stats() ratelimit.FailoverStats
	}
}

// An Observed part calls a store.
type Observed interface {
	ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool))
	TraceCalls(func(ctx context.Context, call string) (traced context.Context, end func(error)))
}

// Observed returns the parts that call a store.
func (p Parts) Observed() (all []Observed) {
	if p.Keys != nil {
		all = append(all, p.Keys)
	}
	if p.Replies != nil {
		all = append(all, p.Replies)
	}
	if counters, ok := p.Counters.(Observed); ok {
		all = append(all, counters)
	}
	return all
}

// Calls are the names of the calls.
var Calls = []string{"lookup", "begin", "settle", "take"}

// Result names how a call ended.
func Result(answered bool) string {
	if answered {
		return "answered"
	}
	return "failed"
}

// A Figure is one figure of a part.
type Figure struct {
	Name    string // as in OpenTelemetry, such as "sallyport.keys.cached"
	Help    string
	Unit    string // of UCUM, "" for a count
	Counter bool   // it never falls
	Value   float64
}

// Figures returns what p has, always in the same order.
func (p Parts) Figures() (all []Figure) {
	gauge := func(name, unit, help string, value float64) {
		all = append(all, Figure{"sallyport." + name, help, unit, false, value})
	}
	number := func(name, help string, n int) { gauge(name, "", help, float64(n)) }
	flag := func(name, help string, up bool) {
		n := 0
		if up {
			n = 1
		}
		number(name, help, n)
	}
	moment := func(name, what string, t time.Time) {
		seconds := 0.0
		if !t.IsZero() {
			seconds = float64(t.UnixMilli()) / 1000
		}
		gauge(name, "s", what+", in seconds since 1970; 0: never.", seconds)
	}
	count := func(name, help string, n uint64) {
		all = append(all, Figure{"sallyport." + name, help, "", true, float64(n)})
	}
	if p.Keys != nil {
		s := p.Keys.Stats()
		count("key_cache.hits", "Keys that were found in memory.", s.Hits)
		count("key_cache.misses", "Questions to the key store.", s.Asked)
		count("key_cache.failures", "Questions to the key store without an answer.", s.Failed)
		flag("key_cache.down", "1 while the key store does not answer.", s.Down)
		number("key_cache.keys", "Keys in memory that may be used.", s.Usable)
		number("key_cache.expiring", "Keys in memory that may be used and expire within 14 days.",
			p.Keys.Expiring(14*24*time.Hour))
		if s.NeedsRun {
			moment("key_cache.last_poll", "When changed keys were last read", s.Polled)
		}
	}
	if p.Replies != nil {
		s := p.Replies.Stats()
		flag("idempotency.down", "1 while the reply store does not answer.", s.Down)
		number("idempotency.executions", "Requests with an idempotency key that run now.", s.Executions)
		number("idempotency.waiters", "Repeats that wait for the first request.", s.Waiters)
		number("idempotency.unsaved", "Outcomes that the store has not taken yet.", s.Unsaved)
		count("idempotency.renewal_errors", "Leases that could not be renewed.", s.RenewalErrors)
		count("idempotency.save_errors", "Calls that did not save an outcome.", s.SaveErrors)
		count("idempotency.lost", "Executions whose claim was taken over.", s.Lost)
		switch store := p.Replies.Store().(type) {
		case *idem.Memory:
			s := store.Stats()
			gauge("idempotency.memory", "By", "What the replies in memory take.", float64(s.Bytes))
			count("idempotency.forgotten", "Replies that were dropped before their time.", s.Forgotten)
		case interface{ Swept() time.Time }:
			moment("idempotency.last_sweep", "When expired replies were last removed", store.Swept())
		}
	}
	if p.Counters != nil {
		s := p.Counters.Stats()
		flag("rate_limit.down", "1 while the counter store is not called.", s.Down)
		count("rate_limit.fallbacks", "Decisions without the counter store.", uint64(s.Fallbacks))
	}
	return all
}
