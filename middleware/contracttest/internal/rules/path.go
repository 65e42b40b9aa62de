package rules

import "strings"

var pathRules = []Rule{
	{
		Name: "path/version", Level: Contract, Source: section9,
		Text: "The routes are below the base path alone: not without it, nor below another version.",
		Hint: "register the whole path, and do not strip what you do not know",
		check: func(p *probe) {
			rest := strings.TrimPrefix(p.target.Read, p.target.Base)
			other := strings.Replace(p.target.Base, "/v1", "/v9", 1)
			if other == p.target.Base {
				other += "9"
			}
			for _, base := range []string{"", "/api", "/v1", other, "/contract-unknown"} {
				if base == p.target.Base {
					continue
				}
				path := base + rest
				if a := p.do(get(path, p.full())); p.servedAt(a, base) {
					p.fault(a, "GET %s is answered as GET %s", path, p.target.Read)
				}
			}
		},
	},
}

// servedAt reports whether a response is that of the read, and not what every
// path below this base gets.
func (p *probe) servedAt(a answer, base string) bool {
	if !a.ok() || a.mediaType() != p.sample.mediaType() || disjoint(members(a.body), members(p.sample.body)) {
		return false
	}
	if members(a.body) == nil && a.body != p.sample.body {
		return false
	}
	control := p.do(get(base+"/contract-unknown", p.full()))
	return !control.ok() || control.body != a.body && disjoint(members(control.body), members(a.body))
}
