package rules

import (
	"encoding/json"
	"net/url"
	"strings"
)

var organizationChecks = checks{
	"organization/resources": func(p *probe) {
		p.wantUnseen(p.full(), p.key("other"))
		p.wantUnseen(p.key("other"), p.full())
	},
	"organization/connection": func(p *probe) {
		if !p.some(p.wantOwnOnConnection) {
			p.vacuousf("without {{random}} in the body nobody's resources can be told apart")
		}
	},
	"organization/account": func(p *probe) {
		full, other := p.full(), p.key("other")
		is, query := p.accounts(full, other), newUUID()
		p.fresh(full, query)
		p.wantOwn("a GET after one of another organization", p.fresh(other, query), other, is.key)
		p.parallel(12, func(i int) {
			if i%2 == 0 {
				p.do(p.read(full))
				return
			}
			p.wantOwn("a GET beside those of another organization", p.do(p.read(other)), other, is.key)
		})
	},
	"organization/claimed": func(p *probe) {
		full, what := p.full(), "a GET that claims an organization"
		is := p.accounts(full, p.key("other"))
		for id := range is.other {
			lines, query := []string{}, newUUID()
			for _, name := range []string{"Organization", "Org", "Tenant", "Account"} {
				lines = append(lines, "X-"+name+": "+url.QueryEscape(id), "X-"+name+"-Id: "+url.QueryEscape(id))
				for _, form := range []string{"", "_id", "Id"} {
					query += "&" + strings.ToLower(name) + form + "=" + url.QueryEscape(id)
				}
			}
			p.wantOwn(what, p.do(p.read(full).with(lines...).anew()), full, is.other)
			p.wantOwn(what, p.fresh(full, query), full, is.other)
			if host := url.QueryEscape(id) + "." + p.base.Host; !strings.ContainsAny(host, "+%") {
				p.wantOwn(what, p.do(p.read(full).with("Host: "+host, "X-Forwarded-Host: "+host).anew()), full, is.other)
			}
			p.eachCreate(full, func(c creation) {
				name, err := json.Marshal(id)
				rest, object := strings.CutPrefix(c.body, "{")
				if err != nil || !object || strings.HasPrefix(strings.TrimSpace(rest), "}") {
					return
				}
				members := `"organization":X,"organization_id":X,"org":X,"tenant":X,"account_id":X,`
				c.body, c.seenBy = "{"+strings.ReplaceAll(members, "X", string(name))+rest, p.key("other")
				w := p.watch(c)
				p.do(c.request) // it may be refused
				w.most(0, "after a create whose body claims another organization")
			})
		}
	},
	"organization/counts": func(p *probe) {
		for i, to := range p.target.Creates {
			if to.List == "" {
				continue
			}
			list := func() string { return p.do(get(to.List, p.full())).body }
			lists := []string{list(), list()}
			if _, itself := length(lists); itself {
				p.vacuousf("a number in the list rises by itself")
			}
			for range 3 {
				p.wantOK("a create of the other organization", p.do(p.create(i, p.key("other")).request))
				lists = append(lists, list())
			}
			if name, counts := length(lists[1:]); counts {
				p.fault(answer{}, "a number in the list, %s, rises with each create of another organization", name[1:])
			}
		}
	},
	"organization/idempotency": func(p *probe) {
		p.eachCreate(p.full(), func(c creation) {
			p.wantApartAtOnce(c, p.create(c.route, p.key("other")).keyedWith(c.key()))
		})
		p.wantOwnKeys("other")
	},
	"organization/environment-idempotency": func(p *probe) { p.wantOwnKeys("sandbox") },
	"organization/environment-resources": func(p *probe) {
		p.wantUnseen(p.full(), p.key("sandbox"))
		p.wantUnseen(p.key("sandbox"), p.full())
	},
}

// some looks at each route, and reports whether one of them could be looked at.
func (p *probe) some(look func(route int) bool) bool {
	looked := false
	for i := range p.target.Creates {
		looked = look(i) || looked
	}
	return looked
}

// wantOwnOnConnection looks at the list of a route with the keys of two
// organizations on one connection. It returns false when nobody can tell whose
// resources are shown.
func (p *probe) wantOwnOnConnection(route int) bool {
	if p.target.Creates[route].List == "" {
		return false
	}
	mine, theirs := p.create(route, p.full()), p.create(route, p.key("other"))
	list := p.target.Creates[route].List
	p.wantOK("a create", p.do(mine.request))
	p.wantOK("a create of the other organization", p.do(theirs.request))
	if mine.marker == "" {
		return false
	}
	for _, order := range [][]string{{"full", "other"}, {"other", "full"}} {
		answers := p.sequence(get(list, p.key(order[0])), get(list, p.key(order[1])))
		for i, a := range answers {
			foreign := map[string]string{"full": theirs.marker, "other": mine.marker}[order[i]]
			if strings.Contains(a.body, foreign[:markerPrefix]) {
				p.fault(a, "request %d of a connection, with the key %s, shows a resource of another organization", i+1, order[i])
			}
		}
	}
	return true
}

// wantUnseen creates with one key and looks with another, on each route that
// has a list.
func (p *probe) wantUnseen(creator, viewer string) {
	for i, to := range p.target.Creates {
		if to.List == "" {
			continue
		}
		c := p.create(i, creator)
		c.seenBy = viewer
		w := p.watch(c)
		p.wantOK("the create", p.do(c.request))
		p.do(get(to.List, creator)) // may fill a cache
		bad := p.create(i, creator)
		bad.body = "{"
		p.do(bad.request) // may leave its organization behind
		w.most(0, "with a key that may not see it")
	}
}

// wantOwnKeys repeats creates with the key of another partition.
func (p *probe) wantOwnKeys(name string) {
	if !p.some(func(route int) bool { return p.wantOwnKey(route, name) }) {
		p.vacuousf("the body has a value that must be unique among all")
	}
}

// wantOwnKey returns false when the body is refused anyway.
func (p *probe) wantOwnKey(route int, name string) bool {
	c := p.create(route, p.full())
	first := p.wantOK("the create", p.do(c.request))
	p.expect(c, 2) // one each, where both lists show both
	other := p.create(route, p.key(name))
	if !p.silent && !p.echoes {
		other.body, other.marker = c.body, c.marker
	}
	other = other.keyedWith(c.key())
	w := p.watch(other)
	a := p.do(other.request)
	if a.status == 409 || a.status == 422 || a.status == 400 {
		// A value that must be unique among all, or the keys are shared.
		fresh := p.create(route, p.key(name)).keyedWith(newUUID())
		fresh.body = other.body
		if p.do(fresh.request).ok() {
			p.fault(a, "the same idempotency key with the key %s: got %d", name, a.status)
		}
		return false
	}
	p.wantOK("the create with the key "+name, a)
	p.wantOther("the create with the key "+name, a, first)
	w.made("the create with the key " + name)
	p.wantSame("the repeat after a create with the key "+name, p.do(c.request), first)
	return true
}
