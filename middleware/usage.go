package middleware

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// Usage returns a handler that tells callers what they have used of the quotas of
// Options.Quota, for a route such as "GET /api/v1/usage" without Units. What is
// used may be a second old, and left is never negative. A key has one member of
// the kind "organization" and one of the kind "key", as far as it has these quotas;
// resets_at is left out for a quota without an end.
//
//	{"quotas":[{"name":"monthly","of":"organization","period":"month",
//	  "units":10000,"used":1203,"left":8797,"resets_at":"2027-01-01T00:00:00Z"}]}
//
// When the store does not answer, it is 503. It panics if there is no quota.
func (g *Guard) Usage() http.Handler {
	if !g.options.Quota.limits() {
		panic("middleware: Usage: there is no quota in Options.Quota")
	}
	type used struct {
		Name   string    `json:"name"`
		Of     string    `json:"of"`
		Period string    `json:"period"`
		Units  int64     `json:"units"`
		Used   int64     `json:"used"`
		Left   int64     `json:"left"`
		Resets time.Time `json:"resets_at,omitzero"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := factsOf(r.Context())
		if !g.admits(f) {
			g.report.misuse(w, r, StageQuota, "Usage has no Authenticate before it")
			return
		}
		if f.caller == nil { // let through by Options.ReportOnly
			g.report.refuse(w, r, StageQuota, denied(codes.NotFound))
			return
		}
		all, err := g.UsageOf(detached{f}, f.caller)
		if err != nil {
			g.report.refuse(w, r, StageQuota, uncounted(g.report, w, r, err))
			return
		}
		quotas := []used{}
		for _, u := range all {
			quotas = append(quotas, used{
				u.Quota.Name, u.Of, u.Quota.Period.String(), u.Quota.Units, u.Used, u.Left(), u.Resets,
			})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(map[string][]used{"quotas": quotas})
	})
}

// UsageOf returns what a caller has used of the quotas of Options.Quota, as far as
// it has them: first the organization's. What is used may be a second old. A nil
// caller has none. The error is that of the store or of QuotaOptions.Plan.
func (g *Guard) UsageOf(ctx context.Context, c *keystore.Caller) (all []idem.Usage, err error) {
	if g.quotas == nil || c.Tenant() == "" {
		return nil, nil
	}
	s := &quotaStage{quotas: g.quotas}
	limits, err := s.limitsOf(ctx, c, AccountOf(c))
	for _, l := range limits {
		u := idem.Usage{Quota: l.Quota, Of: "organization"}
		if len(l.Account.Within()) > 3 {
			u.Of = "key"
		}
		if u.Used, u.Resets, err = g.quotas.meter.Used(ctx, l); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, err
}
