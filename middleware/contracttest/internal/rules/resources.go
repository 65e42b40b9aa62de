package rules

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"strings"
)

// resourceChecks follow a resource to its own path. Where there is none, they
// do not apply.
var resourceChecks = checks{
	"resource/missing-key": func(p *probe) {
		p.eachResource(func(r resource) {
			p.refuses(p.nobody(), "a GET of a resource", get(r.path, ""))
			p.refuses(p.stranger(), "a GET of a resource", get(r.path, p.stranger().key))
			p.refuses(p.nobody(), "a GET of no resource", get(r.sibling(), ""))
			r.survives(p.nobody())
		})
	},
	"resource/scope": func(p *probe) {
		p.eachResource(func(r resource) {
			p.refuses(p.lacking("none"), "a GET of a resource", get(r.path, p.key("none")))
			p.refuses(p.lacking("none"), "a GET of no resource", get(r.sibling(), p.key("none")))
			r.survives(p.lacking("none"))
			if p.has("reader") {
				r.survives(p.lacking("reader"))
			}
		})
	},
	"resource/organization": func(p *probe) {
		p.eachResource(func(r resource) {
			by := caller{key: p.key("other"), who: "with the key other"}
			for _, method := range []string{"GET", "HEAD"} {
				a := p.do(get(r.path, by.key).by(method))
				if !p.done(a) {
					continue
				}
				if method == "GET" && r.numbered() && !strings.Contains(a.body, r.of.marker) {
					break // it is this organization's own, of the same number
				}
				p.fault(a, "a %s of a resource of another organization: got %d", method, a.status)
			}
			// Whether these show it, all responses together tell.
			for _, to := range p.target.Creates {
				p.do(get(to.Path+"/"+r.id(), by.key))
				if to.List == "" {
					continue
				}
				p.do(get(to.List+separator(to.List)+"id="+r.id()+"&ids="+r.id(), by.key))
				m := r.of.marker
				a := p.do(get(to.List+separator(to.List)+"title="+m+"&q="+m+"&search="+m, by.key))
				listed := func() bool { // without the filter too: it is this organization's own
					return r.numbered() && strings.Contains(p.do(get(to.List, by.key)).body, r.id())
				}
				if len(r.id()) >= 8 && strings.Contains(a.body, r.id()) && !listed() {
					p.fault(a, "a list with a filter shows a resource of another organization")
				}
			}
			if own := p.create(r.of.route, by.key); strings.HasPrefix(own.body, `{"`) {
				own.body = `{"id":"` + r.id() + `",` + own.body[1:]
				p.do(own.request) // it may be refused
			}
			r.survives(by)
		})
	},
	"resource/repeated": func(p *probe) {
		p.eachResource(func(r resource) {
			p.wantSame("the repeat", p.do(r.of.request), r.original)
			if now := p.do(get(r.path, p.full())); now.class() == 4 {
				p.fault(now, "after the repeat of its create the resource is gone: got %d", now.status)
			}
		})
	},
	"resource/deleted": func(p *probe) {
		gone := false
		p.eachResource(func(r resource) {
			if !p.do(get(r.path, p.full()).by("DELETE")).ok() {
				return
			}
			gone = true
			w := p.watch(r.of)
			before := w.count()
			p.wantSame("the repeat of a create whose resource was deleted", p.do(r.of.request), r.original)
			w.most(before, "after the repeat of a create whose resource was deleted")
		})
		if !gone {
			p.vacuousf("no resource can be deleted")
		}
	},
}

// resource is what a create has made, and where it is shown.
type resource struct {
	p        *probe
	of       creation
	original answer // to the create
	path     string
	shown    answer
}

// eachResource creates on each route and follows the Location of the response.
func (p *probe) eachResource(look func(r resource)) {
	followed := false
	p.eachCreate(p.full(), func(c creation) {
		r := resource{p: p, of: c, original: p.wantOK("the create", p.do(c.request))}
		to, err := url.Parse(r.original.location())
		if err != nil || to.Host != "" && to.Host != p.base.Host {
			return
		}
		r.path = strings.TrimPrefix(to.EscapedPath(), strings.TrimRight(p.base.Path, "/"))
		if !strings.HasPrefix(r.path, p.target.Base+"/") {
			return
		}
		if to.RawQuery != "" {
			r.path += "?" + to.RawQuery
		}
		if r.shown = p.do(get(r.path, p.full())); p.done(r.shown) {
			followed = true
			look(r)
		}
	})
	if !followed {
		p.vacuousf("no response to a create has a Location that GET shows")
	}
}

// follow asks for the Location of a response to a create, where it has one.
func (p *probe) follow(a answer, key string) answer {
	if to := a.location(); strings.HasPrefix(to, p.target.Base+"/") {
		return p.do(get(to, key))
	}
	return answer{}
}

// id is the last part of the path.
func (r resource) id() string {
	path, _, _ := strings.Cut(r.path, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}

var counted = regexp.MustCompile(`^[^0-9]*[0-9]{1,9}$`)

// numbered reports whether the id may be a number that each organization counts
// for itself, and the resource shows whose it is.
func (r resource) numbered() bool {
	return counted.MatchString(r.id()) && r.of.marker != "" && strings.Contains(r.shown.body, r.of.marker)
}

// sibling is the path of a resource that nobody has made.
func (r resource) sibling() string {
	id, other := r.id(), flip(r.id()[len(r.id())-1])
	if last := id[len(id)-1]; last >= '0' && last <= '9' {
		other = string('0' + (last-'0'+1)%10)
	}
	return strings.Replace(r.path, id, id[:len(id)-1]+other, 1)
}

// survives wants a resource to be as before, whatever a caller does who may not.
func (r resource) survives(by caller) {
	to := get(r.path, by.key).with("Content-Type: " + r.p.target.Creates[r.of.route].Type)
	to.body = r.p.create(r.of.route, "").body
	var a answer
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		a = r.p.do(to.by(method).anew())
	}
	now := r.p.do(get(r.path, r.p.full()))
	marked := strings.Contains(r.shown.body, r.of.marker)
	if now.status != r.shown.status || marked && !strings.Contains(now.body, r.of.marker) {
		r.p.fault(a, "after PUT, PATCH and DELETE of a resource %s it is changed or gone: %v", by.who, now)
	}
}

// account is what tells the response to the read with one key from that with
// another: the texts that each has, and the other lacks.
type account struct{ key, other map[string]bool }

// accounts compares the responses to the read with two keys. It reads with
// queries that nobody has asked for, so that no cache knows the response.
func (p *probe) accounts(key, other string) account {
	texts := func(key string) map[string]bool {
		a, b := leaves(p.fresh(key, newUUID()).body), leaves(p.fresh(key, newUUID()).body)
		maps.DeleteFunc(a, func(text string, _ bool) bool { return !b[text] }) // such as a time
		return a
	}
	mine, theirs := texts(key), texts(other)
	both := maps.Clone(mine)
	maps.DeleteFunc(mine, func(text string, _ bool) bool { return theirs[text] })
	maps.DeleteFunc(theirs, func(text string, _ bool) bool { return both[text] })
	if len(mine) == 0 || len(theirs) == 0 {
		p.vacuousf("the response to the read does not tell organizations apart")
	}
	return account{mine, theirs}
}

func (p *probe) fresh(key, value string) answer {
	return p.do(get(p.target.Read+separator(p.target.Read)+"contract="+value, key).anew())
}

// wantOwn wants a response not to be that of another organization. What the
// key shows by itself, now and then, is nobody's: the name of a machine, say.
func (p *probe) wantOwn(what string, a answer, key string, theirs map[string]bool) {
	is := func(a answer) bool {
		shown := leaves(a.body)
		for text := range theirs {
			if !shown[text] {
				return false
			}
		}
		return a.ok()
	}
	if !is(a) {
		return
	}
	for range 8 {
		if is(p.fresh(key, newUUID())) {
			p.vacuousf("the response to the read changes by itself")
		}
	}
	p.fault(a, "%s shows what is another organization's", what)
}

// leaves returns the texts in a JSON value, without numbers and times.
func leaves(body string) map[string]bool {
	var value any
	found := make(map[string]bool)
	if json.Unmarshal([]byte(body), &value) != nil {
		return found
	}
	var visit func(value any)
	visit = func(value any) {
		switch v := value.(type) {
		case string:
			if word.MatchString(v) && !clock.MatchString(v) {
				found[v] = true
			}
		case []any:
			for _, member := range v {
				visit(member)
			}
		case map[string]any:
			for _, member := range v {
				visit(member)
			}
		}
	}
	visit(value)
	return found
}

// clock matches the times of day.
var clock = regexp.MustCompile(`[0-9]:[0-9]{2}`)
