package rules

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

var authRules = []Rule{
	{Name: "auth/live-key", Level: Contract, Source: section5,
		Text: "A live key in Authorization: Bearer is accepted.",
		Hint: "compare the digest of the whole token with those of the live keys",
		check: func(p *probe) {
			p.wantOK("a GET with the key full", p.do(p.read(p.full())))
		}},
	{Name: "auth/missing-key", Level: Contract, Source: section5,
		Text: "A request without a key is answered 401, whatever its method and path.",
		Hint: "authenticate in front of the router, not in each handler",
		check: func(p *probe) {
			by := p.nobody()
			p.refusesRead(by)
			for _, value := range []string{"", "Bearer", "Bearer ", "bearer  "} {
				p.want(fmt.Sprintf("Authorization: %q", value), p.do(p.read("").with("Authorization: "+value).anew()), 401)
			}
			p.refusesLists(by)
			p.refusesCreates(by)
			p.eachCreate("", func(c creation) {
				c.body = "{"
				p.refuses(by, "a create with a bad body and", c.request)
			})
		}},
	{Name: "auth/missing-key-head", Level: Contract, Source: section5,
		Text:  "HEAD needs a key where GET does.",
		Hint:  "routers serve HEAD by the handler of GET, so the check has to stand in front of both",
		check: func(p *probe) { p.refusesHead(p.nobody()) }},
	{Name: "auth/missing-key-methods", Level: Contract, Source: section5,
		Text: "PUT, PATCH and DELETE do nothing without a key, and OPTIONS shows no account data.",
		Hint: "authenticate all methods, and let OPTIONS say what is allowed and no more",
		check: func(p *probe) {
			paths := []string{p.target.Read}
			for _, c := range p.target.Creates {
				paths = append(paths, c.Path)
			}
			for _, path := range paths {
				for _, method := range []string{"PUT", "PATCH", "DELETE"} {
					if a := p.do(get(path, "").by(method).anew()); p.done(a) {
						p.fault(a, "%s without a key: got %d, want 401", method, a.status)
					}
				}
			}
			for _, r := range []request{p.read("").by("OPTIONS"), p.preflight()} {
				if a := p.do(r.anew()); p.served(a) {
					p.fault(a, "OPTIONS without a key is answered with the data of the account")
				}
			}
		}},
	{Name: "auth/missing-key-paths", Level: Contract, Source: section5,
		Text:  "Another spelling of a path opens nothing: trailing, doubled and encoded slashes, dots.",
		Hint:  "decide by the route that was matched and not by the text of the path",
		check: func(p *probe) { p.refusesSpellings(p.nobody()) }},
	{Name: "auth/bearer-only", Level: Contract, Source: section5,
		Text: "A key anywhere else than in Authorization: Bearer is no key: " +
			"not in the query, a cookie, another header or another scheme.",
		Hint: "a key in a URL ends in logs; take it from one place",
		check: func(p *probe) {
			key := p.full()
			for _, name := range []string{"api_key", "key", "token", "access_token", "apikey"} {
				a := p.do(p.read("").at(p.target.Read + separator(p.target.Read) + name + "=" + key))
				p.want("the key in the query as "+name, a, 401)
			}
			basic := base64.StdEncoding.EncodeToString([]byte(key + ":"))
			password := base64.StdEncoding.EncodeToString([]byte("key:" + key))
			for _, line := range []string{
				"X-Api-Key: " + key, "Api-Key: " + key, "X-Auth-Token: " + key,
				"Cookie: api_key=" + key + "; token=" + key,
				"Authorization: " + key, "Authorization: Token " + key, "Authorization: ApiKey " + key,
				"Authorization: Basic " + basic, "Authorization: Basic " + password,
			} {
				name, value, _ := strings.Cut(line, ": ")
				scheme, _, _ := strings.Cut(value, " ")
				if scheme != value && name == "Authorization" {
					name += " with " + scheme
				}
				p.want("the key in "+name, p.do(p.read("").with(line).anew()), 401)
			}
		}},
	{Name: "auth/cookie", Level: Contract, Source: section5,
		Text: "A cookie that a response has set is no key.",
		Hint: "a session of the dashboard does not open the API",
		check: func(p *probe) {
			var pairs []string
			collect := func(r request) {
				a := p.wantOK("a request with the key full", p.do(r))
				for _, c := range (&http.Response{Header: a.header}).Cookies() {
					pairs = append(pairs, c.Name+"="+c.Value)
				}
			}
			collect(p.read(p.full()))
			p.eachCreate(p.full(), func(c creation) { collect(c.request) })
			if len(pairs) > 0 {
				r := p.read("").with("Cookie: " + strings.Join(pairs, "; "))
				p.want("a GET with the cookies and without a key", p.do(r.anew()), 401)
			}
		}},
	{Name: "auth/method-override", Level: Contract, Source: section5,
		Text: "A method that a header claims opens nothing.",
		Hint: "leave X-HTTP-Method-Override to proxies, or apply it before authentication",
		check: func(p *probe) {
			for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
				r := p.read("").with("X-HTTP-Method-Override: "+method, "X-Method-Override: "+method)
				if a := p.do(r.anew()); p.served(a) {
					p.fault(a, "X-HTTP-Method-Override: %s without a key: got %d, want 401", method, a.status)
				}
			}
		}},
	{Name: "auth/invalid-key", Level: Contract, Source: section5,
		Text: "A key that was altered, shortened or made up is answered 401.",
		Hint: "compare the whole key, byte by byte; 401 and never 403, 404 or 500",
		check: func(p *probe) {
			for _, name := range []string{"full", "sandbox"} {
				keys := altered(p.key(name))
				for _, how := range slices.Sorted(maps.Keys(keys)) {
					p.want("the key "+name+" with "+how, p.do(p.read(keys[how]).anew()), 401)
				}
			}
		}},
	{Name: "auth/malformed-key", Level: Contract, Source: section5,
		Text: "A token that does not look like a key is answered 401.",
		Hint: "check the length before taking parts of a token",
		check: func(p *probe) {
			prefix := strings.TrimSuffix(p.full(), secretPart(p.full()))
			for _, token := range []string{
				"x", "sv", "svc", "_", "__", "-", prefix, "a.b.c", "not-a-key-at-all", strings.Repeat("k", 1000),
			} {
				p.want(fmt.Sprintf("the token %.20q", token), p.do(p.read(token).anew()), 401)
			}
			// No characters of a token: the credentials may be called malformed
			// (400), and by the server itself. They are never accepted.
			odd := map[string]string{
				"a word behind the key":  p.full() + " x",
				"a comma behind the key": p.full() + ",x",
				"a percent sign":         prefix + "%",
				"an asterisk":            prefix + "*",
				"a quote":                prefix + "'",
				"a condition of SQL":     prefix + "' OR '1'='1",
				"a byte above ASCII":     prefix + "\xff",
				"a letter above ASCII":   p.full() + "\u00e9",
			}
			for _, what := range slices.Sorted(maps.Keys(odd)) {
				if a := p.do(p.read(odd[what]).anew()); a.status != 401 && a.status != 400 {
					p.fault(a, "a token with %s: got %d, want 401", what, a.status)
				}
			}
		}},
	{Name: "auth/invalid-key-create", Level: Contract, Source: section5, needs: "create",
		Text:  "A create with an invalid key is answered 401 and makes nothing.",
		Hint:  "authenticate before the handler runs",
		check: func(p *probe) { p.refusesCreates(p.stranger()) }},
	{Name: "auth/revoked-key", Level: Contract, Source: section5, needs: "revoked",
		Text: "A revoked key is invalid: 401, and it makes nothing.",
		Hint: "only a live key can lack a scope, so 403 is wrong here",
		check: func(p *probe) {
			p.refusesRead(p.revoked())
			p.refusesCreates(p.revoked())
		}},
	{Name: "auth/replay", Level: Contract, Source: section5, needs: "create",
		Text: "A stored response is not handed out without a live key: 401.",
		Hint: "authenticate in front of the store of responses",
		check: func(p *probe) {
			callers := []caller{p.nobody(), p.stranger()}
			if p.has("revoked") {
				callers = append(callers, p.revoked())
			}
			p.refusesRepeats(callers...)
		}},
	{Name: "auth/no-lockout", Level: Contract, Source: section5, when: alone,
		Text: "Invalid keys of others do not stop a live key from being accepted.",
		Hint: "count failures by token or address, and do not refuse what is valid",
		check: func(p *probe) {
			for range 12 {
				p.do(p.read(another(p.full())).anew())
			}
			for range 3 {
				p.wantOK("a live key after 12 invalid ones", p.do(p.read(p.full())))
			}
		}},
	{Name: "auth/connection", Level: Contract, Source: section5,
		Text: "Each request of a connection is authenticated.",
		Hint: "keep nothing about the caller with the connection",
		check: func(p *probe) {
			full := p.read(p.full())
			for _, r := range []request{p.read(""), p.read(flipLast(p.full()))} {
				answers := p.sequence(full, r)
				p.wantOK("the first request of a connection", answers[0])
				p.want("the next one, without a live key", answers[1], 401)
			}
		}},
	{Name: "auth/connection-recovers", Level: Contract, Source: section5,
		Text: "A live key is accepted on a connection whose request before was refused, unless the server closed it.",
		Hint: "keep nothing about the caller with the connection, also no refusal",
		check: func(p *probe) {
			for _, r := range []request{p.read(flipLast(p.full())), p.read("")} {
				answers := p.sequence(r, p.read(p.full()))
				p.want("the first request of a connection, without a live key", answers[0], 401)
				p.wantOK("the next one, with a live key", answers[1])
			}
		}},
	{Name: "auth/unknown-path", Level: Advice, Source: practice,
		Text: "An unknown path below the base path is 401 without a key, not 404.",
		Hint: "a 404 tells strangers which routes there are",
		check: func(p *probe) {
			p.want("an unknown path without a key", p.do(get(p.target.Base+"/contract-unknown", "")), 401)
		}},
	{Name: "auth/challenge", Level: Advice, Source: "RFC 9110, section 15.5.2, and RFC 6750",
		Text: "A 401 has WWW-Authenticate: Bearer.",
		Hint: `set WWW-Authenticate: Bearer realm="…"`,
		check: func(p *probe) {
			for _, r := range []request{p.read(""), p.read(flipLast(p.full())).anew()} {
				if a := p.do(r); !strings.HasPrefix(strings.ToLower(a.header.Get("WWW-Authenticate")), "bearer") {
					p.fault(a, "the %d has WWW-Authenticate %q", a.status, a.header.Get("WWW-Authenticate"))
				}
			}
		}},
	{Name: "auth/two-headers", Level: Advice, Source: "RFC 9110, section 5.3",
		Text: "Two Authorization headers are no key.",
		Hint: "proxies and servers may read different ones: refuse both",
		check: func(p *probe) {
			good, bad := bearer(p.full()), bearer(flipLast(p.full()))
			for _, lines := range [][]string{{good, bad}, {bad, good}} {
				if a := p.do(p.read("").with(lines...).anew()); a.ok() {
					p.fault(a, "two Authorization headers: got %d", a.status)
				}
			}
		}},
	{Name: "auth/scheme-case", Level: Advice, Source: "RFC 9110, section 11.1",
		Text: "The name of the scheme is read in any letter case.",
		Hint: "compare it with strings.EqualFold or its like",
		check: func(p *probe) {
			for _, scheme := range []string{"bearer", "BEARER"} {
				p.wantOK("Authorization: "+scheme, p.do(p.read("").with("Authorization: "+scheme+" "+p.full()).anew()))
			}
		}},
}
