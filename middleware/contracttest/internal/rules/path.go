package rules

import "strings"

var pathChecks = checks{
	"path/version": func(p *probe) {
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
			if a := p.do(get(path, p.full())); p.served(a) {
				p.fault(a, "GET %s is answered as GET %s", path, p.target.Read)
			}
		}
	},
}
