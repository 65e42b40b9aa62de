package reference

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// claims are the keys that a defect makes of a key and what the request says.
var claims = map[string]func(x *exchange, k key) *key{
	"org-by-header":   func(x *exchange, k key) *key { return k.of(x.r.Header.Get("X-Organization-Id")) },
	"org-by-query":    func(x *exchange, k key) *key { return k.of(x.r.URL.Query().Get("organization")) },
	"scope-by-header": func(x *exchange, k key) *key { return k.with(x.r.Header.Get("X-Scopes")) },
	"scope-by-query":  func(x *exchange, k key) *key { return k.with(x.r.URL.Query().Get("scope")) },
	"org-mixed": func(x *exchange, k key) *key {
		if k.org == "org_1" {
			x.s.running.Add(1)
			time.AfterFunc(time.Millisecond, func() { x.s.running.Add(-1) })
		}
		time.Sleep(time.Millisecond / 2)
		if x.s.running.Load() > 0 {
			k.org = "org_1"
		}
		time.Sleep(time.Millisecond)
		return &k
	},
	"scope-narrowed": func(x *exchange, k key) *key {
		now := flight{&k, time.Now()}
		before, ok := x.s.flights.Swap(k.org, now)
		if last, _ := before.(flight); ok && time.Since(last.at) < time.Second && len(last.key.scopes) < len(k.scopes) {
			x.s.flights.Store(k.org, last)
			return &key{org: k.org, env: k.env, scopes: last.key.scopes}
		}
		return &k
	},
	"org-by-host": func(x *exchange, k key) *key {
		label, _, _ := strings.Cut(cmp.Or(x.r.Header.Get("X-Forwarded-Host"), x.r.Host), ".")
		if slices.Contains(orgs, label) {
			k.org = label
		}
		return &k
	},
	"org-after-error": func(x *exchange, k key) *key {
		if failed := x.s.failed.Swap(nil); failed != nil {
			k.org = failed.org
		}
		return &k
	},
	"org-slow-body": func(x *exchange, k key) *key { x.s.latest.Store(&k); return &k },
	"org-h2-newest": func(x *exchange, k key) *key {
		if x.r.ProtoMajor == 2 {
			x.conn.newest.Store(&k)
			time.Sleep(time.Millisecond)
			return k.of(x.conn.newest.Load().org)
		}
		return &k
	},
	"scope-worker-bundle": func(_ *exchange, k key) *key {
		if k.may("chat:write") {
			return k.with("deliverables:write")
		}
		return &k
	},
	"scope-of-org": func(_ *exchange, k key) *key { return k.with(strings.Join(all, " ")) },
}

func (k key) of(org string) *key {
	if org != "" {
		k.org = org
	}
	return &k
}

func (k key) with(scopes string) *key {
	k.scopes = append(slices.Clone(k.scopes), strings.Fields(scopes)...)
	return &k
}
