package rules

import (
	"fmt"
	"strings"
	"time"
)

// A caller is somebody whose requests have to be refused.
type caller struct {
	key    string
	who    string // as a report calls them, behind "a GET"
	status int    // of the refusal
	http2  bool   // which version the requests come by
}

func (p *probe) nobody() caller { return caller{key: "", who: "without a key", status: 401} }
func (p *probe) stranger() caller {
	return caller{key: flipLast(p.full()), who: "with an invalid key", status: 401}
}
func (p *probe) revoked() caller {
	return caller{key: p.key("revoked"), who: "with a revoked key", status: 401}
}

// lacking is the caller with a live key that lacks the scope.
func (p *probe) lacking(name string) caller {
	return caller{key: p.key(name), who: "with the key " + name, status: 403}
}

func (by caller) over2() caller {
	by.http2, by.who = true, by.who+" over HTTP/2"
	return by
}

// refuses ends the check unless the caller's request is refused. It has a
// connection of its own, because servers close those that they refuse. What it
// asks for is not in the refusal either.
func (p *probe) refuses(by caller, what string, r request) {
	r.http2 = by.http2
	a := p.want(what+" "+by.who, p.do(r.anew()), by.status)
	if shown := strings.TrimSpace(p.sample.body); len(shown) > 20 && strings.Contains(strings.ReplaceAll(a.body, `\`, ""),
		shown) {
		p.fault(a, "the %d holds what the read shows", a.status)
	}
}

// readable are the paths of GETs that a full key may call: the read, and lists.
func (p *probe) readable() []string {
	paths := []string{p.target.Read}
	for _, c := range p.target.Creates {
		if c.List != "" {
			paths = append(paths, c.List)
		}
	}
	return paths
}

func (p *probe) refusesReads(by caller, paths []string) {
	for _, path := range paths {
		p.refuses(by, "a GET", get(path, by.key))
	}
}

func (p *probe) refusesCreates(by caller) {
	p.eachCreate(by.key, func(c creation) {
		w := p.watch(c)
		p.refuses(by, "a create", c.request)
		bulk := c.without("Idempotency-Key")
		bulk.body = c.list()
		p.refuses(by, "a create of a list, without an idempotency key and", bulk)
		w.most(0, fmt.Sprintf("after a %d", by.status))
		if by.http2 {
			return // the version makes no difference to these
		}
		other := p.create(c.route, by.key)
		w = p.watch(other)
		at, one := c.path, c.path+"/contract-"+newUUID()
		each(p, [][2]string{{"PUT", at}, {"PATCH", at}, {"PUT", one}, {"PATCH", one}}, func(to [2]string) {
			if a := p.do(other.at(to[1]).by(to[0]).anew()); a.status == 201 {
				p.fault(a, "%s %s: got 201, want %d", to[0], by.who, by.status)
			}
		})
		w.most(0, "after PUT and PATCH "+by.who)
	})
}

// refusesRepeats wants no stored response to be handed to the caller.
func (p *probe) refusesRepeats(callers ...caller) {
	p.eachCreate(p.full(), func(c creation) {
		runs := p.create(c.route, p.full())
		p.parallel(2, func(i int) {
			if i == 0 {
				p.do(runs.request) // it may be refused as its repeat was, if that came first
				return
			}
			for range 3 {
				for _, by := range callers {
					p.refuses(by, "its repeat at that time", runs.as(by.key).request)
				}
				p.sleep(5 * time.Millisecond)
			}
		})
		p.wantOK("the create", p.do(c.request))
		for _, by := range callers {
			p.refuses(by, "its repeat", c.as(by.key).request)
			p.refuses(by, "another body with its key", p.another(c).as(by.key).request)
		}
	})
}

func (p *probe) refusesHead(by caller) {
	for _, path := range p.readable() {
		if a := p.do(get(path, by.key).by("HEAD")); a.ok() && p.shows(a, p.do(get(path, p.full()))) {
			p.fault(a, "a HEAD %s: got %d, want %d", by.who, a.status, by.status)
		}
	}
}

// refusesSpellings wants no other spelling of a path to let the caller in.
func (p *probe) refusesSpellings(by caller) {
	for _, read := range p.readable() {
		sample := p.do(get(read, p.full()))
		each(p, spellings(p.target.Base, read), func(path string) {
			if strings.HasSuffix(path, ".css") {
				p.do(get(path, p.full())) // may fill a cache
			}
			if a := p.do(get(path, by.key)); p.shows(a, sample) {
				p.fault(a, "a GET of %s %s is answered as to a caller who may", path, by.who)
			}
		})
	}
	p.eachCreate(by.key, func(c creation) {
		w := p.watch(c)
		each(p, spellings(p.target.Base, c.path), func(path string) {
			if a := p.do(c.at(path).anew()); a.status == 201 {
				p.fault(a, "a create at %s %s: got %d", path, by.who, a.status)
			}
		})
		w.most(0, "after creates at other spellings of the path "+by.who)
	})
}
