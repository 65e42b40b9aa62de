package rules

import (
	"net/url"
	"regexp"
	"strings"
)

var pathChecks = checks{
	"path/version": func(p *probe) {
		if p.target.Base == "" {
			p.vacuousf("the target has no base path")
		}
		rest := strings.TrimPrefix(p.target.Read, p.target.Base)
		other := strings.Replace(p.target.Base, "/v1", "/v9", 1)
		if other == p.target.Base {
			other += "9"
		}
		for _, base := range []string{
			"", "/api", "/v1", other, p.target.Base + "1", "/x" + p.target.Base, "/contract-unknown",
		} {
			if base == p.target.Base {
				continue
			}
			path := base + rest
			if a := p.do(get(path, p.full())); p.served(a) {
				p.fault(a, "GET %s is answered as GET %s", path, p.target.Read)
			}
		}
	},
	"path/header": func(p *probe) {
		stray := get(p.target.Base+"/contract-unknown", p.full())
		a := p.do(stray.with("X-Original-Url: "+p.target.Read, "X-Rewrite-Url: "+p.target.Read))
		if a.ok() && !p.do(stray).ok() {
			p.fault(a, "a header chooses the path of a GET of an unknown one")
		}
	},
	"path/location": func(p *probe) {
		p.eachCreate(p.full(), func(c creation) {
			a := p.do(c.request)
			from, _ := url.Parse(p.target.URL + c.path)
			to, err := from.Parse(a.location())
			if err == nil && a.location() != "" && to.Host == p.base.Host &&
				!strings.HasPrefix(to.Path, strings.TrimRight(p.base.Path, "/")+p.target.Base+"/") {
				p.fault(a, "the Location of a create, %s, does not begin with %s", to.Path, p.target.Base)
			}
		})
		read, _, _ := strings.Cut(p.target.Read, "?")
		a := p.do(get(read+"/", p.full()))
		p.wantBase("a redirect", a, a.location(), read)
		for _, c := range p.target.Creates {
			if c.List == "" {
				continue
			}
			a := p.do(get(c.List, p.full()))
			for _, link := range linked.FindAllStringSubmatch(strings.Join(a.header.Values("Link"), ","), -1) {
				p.wantBase("a Link", a, link[1], c.List)
			}
		}
	},
}

// linked matches the targets of Link (RFC 8288).
var linked = regexp.MustCompile(`<([^>]*)>`)

// wantBase wants a link to a path of this server not to leave out the base path.
func (p *probe) wantBase(what string, a answer, link, path string) {
	to, err := url.Parse(link)
	if err != nil || to.Host != "" && to.Host != p.base.Host || p.target.Base == "" {
		return
	}
	path, _, _ = strings.Cut(path, "?")
	own := strings.TrimPrefix(to.Path, strings.TrimRight(p.base.Path, "/"))
	if p.target.Base+strings.TrimRight(own, "/") == path {
		p.fault(a, "%s leads to %s, which lacks %s", what, to.Path, p.target.Base)
	}
}
