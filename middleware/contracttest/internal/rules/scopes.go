package rules

import "strings"

var scopeRules = []Rule{
	{"scopes/read", "A live key that lacks the scope gets 403 for a read.", "contract, section 5", noneKey, func(p *probe) {
		p.want("a read", p.do(p.read(bearer(p.target.None))), 403)
	}},
	{"scopes/create", "A live key that lacks the scope gets 403 for a create.", "contract, section 5", noneKey | createRoute, func(p *probe) {
		p.want("a create", p.do(p.create(bearer(p.target.None))), 403)
		p.want("a create with an idempotency key", p.do(p.create(bearer(p.target.None), keyed())), 403)
	}},
	{"scopes/no-way-around", "No spelling of the path and no method reads without the scope.", "contract, section 5", noneKey, func(p *probe) {
		p.noSpellingReads(p.target.None)
	}},
	{"scopes/replay", "A key that lacks the scope gets 403 for the repeat of another key's create, not its response.", "contract, section 5", fullKey | noneKey | createRoute, func(p *probe) {
		key := keyed()
		p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.want("the repeat by a key without scopes", p.do(p.create(bearer(p.target.None), key)), 403)
	}},
	{"scopes/challenge", `A 403 has the challenge error="insufficient_scope" and names the scope.`, "RFC 6750, section 3.1", noneKey, func(p *probe) {
		c := p.challenge(p.want("a read", p.do(p.read(bearer(p.target.None))), 403))
		if !strings.Contains(c, `error="insufficient_scope"`) || !strings.Contains(c, `scope="`) {
			p.failf("got the challenge %q", c)
		}
	}},
}

// noSpellingReads asks for the route that reads in other words. Whatever the answer is, it must not be a success.
func (p *probe) noSpellingReads(key string) {
	path := p.base.Path + p.target.Read
	last := len(path) - 1
	for _, target := range []string{
		path, path + "/", "/" + path, path + "/.", "/." + path, path + "/x/..", path[:last] + "%" + hex(path[last]), path + "?a=b", path + ";a=b", "http://" + p.base.Host + path,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if method == "HEAD" && target != path {
				continue
			}
			lines := "Host: " + p.base.Host + "\r\nConnection: close\r\n"
			if key != "" {
				lines += bearer(key) + "\r\n"
			}
			a := p.patiently(func() answer {
				a, err := p.dial().roundTrip(method, method+" "+target+" HTTP/1.1\r\n"+lines+"\r\n")
				if err != nil {
					p.noAnswer(method+" "+target, err)
				}
				return a
			})
			if a.ok() {
				p.failf("%s %s: got %v", method, target, a)
			}
		}
	}
}

func hex(c byte) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[c>>4], digits[c&15]})
}
