package rules

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

var authChecks = checks{
	"auth/live-key": func(p *probe) {
		for _, name := range []string{"full", "second", "sandbox", "other"} {
			if !p.has(name) {
				continue
			}
			p.eachCreate(p.key(name), func(c creation) {
				if a := p.do(c.request); a.status == 401 {
					p.fault(a, "a create with the key %s: got 401", name)
				}
			})
		}
	},
	"auth/missing-key": func(p *probe) {
		by := p.nobody()
		p.refusesReads(by, p.readable())
		for _, value := range []string{"", "Bearer", "Bearer ", "bearer  ", "Digest a=b", "Negotiate YII="} {
			p.want(fmt.Sprintf("Authorization: %q", value), p.do(p.read("").with("Authorization: "+value).anew()), 401)
		}
		p.refusesCreates(by)
	},
	"auth/at-one-time": func(p *probe) {
		callers := []caller{p.nobody(), p.stranger(), {key: p.full(), who: "with the key full", status: p.sample.status},
			{key: another(p.full()), who: "with a key made up", status: 401}}
		if p.has("none") {
			callers = append(callers, p.lacking("none"))
		}
		p.parallel(24, func(i int) {
			by := callers[i%len(callers)]
			if a, err := p.tryPatiently(p.read(by.key).anew()); err == nil {
				p.want("one of many GETs at one time, "+by.who, a, by.status)
			}
		})
	},
	"auth/never-refused":    func(p *probe) { p.report(&p.seen.refused, "a live key was refused") },
	"auth/missing-key-head": func(p *probe) { p.refusesHead(p.nobody()) },
	"auth/missing-key-methods": func(p *probe) {
		refused := func(r request) {
			if a := p.do(r.anew()); p.done(a) {
				p.fault(a, "%s without a key: got %d, want 401", r.method, a.status)
			}
		}
		paths := p.readable()
		p.eachCreate("", func(c creation) {
			refused(c.guised(asPreflight))
			if !slices.Contains(paths, c.path) {
				paths = append(paths, c.path)
			}
		})
		for _, path := range paths {
			for _, method := range []string{"PUT", "PATCH", "DELETE"} {
				refused(get(path, "").by(method))
			}
			refused(get(path, "").guised(asPreflight))
		}
		// A server may have no answer to a method that nobody knows.
		if a, err := p.tryPatiently(p.read("").by("JEFF").anew()); err == nil && p.done(a) {
			p.fault(a, "an unknown method without a key: got %d, want 401", a.status)
		}
		for _, r := range []request{p.read("").by("OPTIONS"), p.preflight()} {
			if a := p.do(r.anew()); p.served(a) {
				p.fault(a, "OPTIONS without a key is answered with the data of the account")
			}
		}
	},
	"auth/missing-key-paths": func(p *probe) { p.refusesSpellings(p.nobody()) },
	"auth/guises":            func(p *probe) { p.refusesGuises(p.nobody()) },
	"auth/bearer-only": func(p *probe) {
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
			"Authorization: Token " + key, "Authorization: ApiKey " + key,
			"Authorization: Basic " + basic, "Authorization: Basic " + password,
			"X-Forwarded-Authorization: Bearer " + key, "Proxy-Authorization: Bearer " + key,
		} {
			name, value, _ := strings.Cut(line, ": ")
			scheme, _, _ := strings.Cut(value, " ")
			if scheme != value && name == "Authorization" {
				name += " with " + scheme
			}
			p.want("the key in "+name, p.do(p.read("").with(line).anew()), 401)
		}
		form := p.read("")
		if len(p.target.Creates) > 0 {
			form = p.unkeyed(0, "").without("Content-Type")
		}
		form.body = "access_token=" + key + "&api_key=" + key
		form = form.with("Content-Type: application/x-www-form-urlencoded")
		p.want("the key in a form", p.do(form.anew()), 401)
		within := strings.Replace(p.target.Read, p.target.Base, p.target.Base+"/"+key, 1)
		if a := p.do(get(within, "").anew()); p.served(a) {
			p.fault(a, "the key in the path: got %d, want 401", a.status)
		}
		p.eachCreate("", func(c creation) {
			a, err := p.dial(c.request).roundTrip(p.head(c.with("Trailer: Authorization"), "Transfer-Encoding: chunked")+
				fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n\r\n", len(c.body), c.body, bearer(key)), (*conn).next)
			if err == nil && p.done(a) {
				p.fault(a, "the key in a trailer: got %d, want 401", a.status)
			}
		})
	},
	"auth/cookie": func(p *probe) {
		var pairs []string
		collect := func(r request) {
			for _, c := range (&http.Response{Header: p.do(r).header}).Cookies() {
				pairs = append(pairs, c.Name+"="+c.Value)
			}
		}
		collect(p.read(p.full()))
		p.eachCreate(p.full(), func(c creation) { collect(c.request) })
		if len(pairs) > 0 {
			r := p.read("").with("Cookie: " + strings.Join(pairs, "; "))
			p.want("a GET with the cookies and without a key", p.do(r.anew()), 401)
		}
	},
	"auth/method-override": func(p *probe) {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			r := p.read("").with("X-HTTP-Method-Override: "+method, "X-Method-Override: "+method)
			if a := p.do(r.anew()); p.served(a) {
				p.fault(a, "X-HTTP-Method-Override: %s without a key: got %d, want 401", method, a.status)
			}
		}
	},
	"auth/invalid-key": func(p *probe) {
		for _, name := range []string{"full", "sandbox"} {
			keys := altered(p.key(name))
			maps.DeleteFunc(keys, func(_, other string) bool {
				issued, _ := p.keyName(p.read(other))
				return issued != ""
			})
			each(p, slices.Sorted(maps.Keys(keys)), func(how string) {
				p.want("the key "+name+" with "+how, p.do(p.read(keys[how]).anew()), 401)
			})
		}
		for _, key := range []string{p.stranger().key, another(p.full())} {
			p.refusesReads(caller{key: key, who: "with an invalid key", status: 401}, p.readable())
		}
	},
	"auth/malformed-key": func(p *probe) {
		prefix := strings.TrimSuffix(p.full(), secretPart(p.full()))
		for _, token := range []string{
			"x", "sv", "svc", "_", "__", "-", prefix, swapped(prefix), "a.b.c", "not-a-key-at-all",
			strings.Repeat("k", 3000), "null", "undefined", "eyJhbGciOiJub25lIn0.e30.",
		} {
			p.want(fmt.Sprintf("the token %.20q", token), p.do(p.read(token).anew()), 401)
		}
		// No characters of a token: the credentials may be refused otherwise, and
		// by the server itself. They are never accepted.
		odd := map[string]string{
			"a percent sign":         prefix + "%",
			"an asterisk":            prefix + "*",
			"a quote":                prefix + "'",
			"a condition of SQL":     prefix + "' OR '1'='1",
			"a byte above ASCII":     prefix + "\xff",
			"a letter above ASCII":   p.full() + "\u00e9",
			"the key behind a dot":   "x." + p.full(),
			"a letter of full width": p.full()[:len(p.full())-1] + string(rune(p.full()[len(p.full())-1])+0xfee0),
		}
		for _, text := range slices.Sorted(maps.Keys(leaves(p.sample.body))) {
			if !strings.ContainsAny(text, " \r\n") && len(odd) < 20 {
				odd["what the read shows, "+text] = text
			}
		}
		each(p, slices.Sorted(maps.Keys(odd)), func(what string) {
			if a := p.do(p.read(odd[what]).anew()); a.class() != 4 {
				p.fault(a, "a token with %s: got %d, want 401", what, a.status)
			}
		})
	},
	"auth/loose-token": func(p *probe) {
		key := p.full()
		for _, value := range []string{
			key, "Digest a=b, Bearer " + key, "Bearer Bearer " + key, "Bearer " + key + " x", "Bearer " + key + ",x",
			"Bearer " + key + "\u00a0", "Bearer token=" + key, `Bearer "` + key + `"`, "Bearer <" + key + ">",
		} {
			if a := p.do(p.read("").with("Authorization: " + value).anew()); a.class() != 4 {
				p.fault(a, "Authorization: %q: got %d, want 401", value, a.status)
			}
		}
	},
	"auth/invalid-key-create": func(p *probe) { p.refusesCreates(p.stranger()) },
	"auth/revoked-key": func(p *probe) {
		p.refusesReads(p.revoked(), p.readable())
		p.refusesCreates(p.revoked())
	},
	"auth/replay": func(p *probe) {
		callers := []caller{p.nobody(), p.stranger()}
		if p.has("revoked") {
			callers = append(callers, p.revoked())
		}
		p.refusesRepeats(callers...)
	},
	"auth/no-lockout": func(p *probe) {
		for range 11 {
			p.do(p.read(another(p.full())).anew())
		}
		p.do(p.read(p.stranger().key).anew()) // begins as the live one
		for range 3 {
			p.wantOK("a live key after 12 invalid ones", p.do(p.read(p.full())))
		}
	},
	"auth/connection": func(p *probe) {
		full := p.read(p.full())
		for _, r := range []request{p.read(""), p.read(flipLast(p.full()))} {
			answers := p.sequence(full, r)
			p.wantOK("the first request of a connection", answers[0])
			p.want("the next one, without a live key", answers[1], 401)
		}
	},
	"auth/connection-recovers": func(p *probe) {
		for _, r := range []request{p.read(flipLast(p.full())), p.read("")} {
			answers := p.sequence(r, p.read(p.full()))
			p.want("the first request of a connection, without a live key", answers[0], 401)
			p.wantOK("the next one, with a live key", answers[1])
		}
	},
	"auth/unknown-path": func(p *probe) {
		p.want("an unknown path without a key", p.do(get(p.target.Base+"/contract-unknown", "")), 401)
	},
	"auth/challenge": func(p *probe) {
		for _, r := range []request{p.read(""), p.read(flipLast(p.full())).anew()} {
			if a := p.do(r); !strings.HasPrefix(strings.ToLower(a.header.Get("WWW-Authenticate")), "bearer") {
				p.fault(a, "the %d has WWW-Authenticate %q", a.status, a.header.Get("WWW-Authenticate"))
			}
		}
	},
	"auth/shared-caches": func(p *probe) {
		for _, r := range []request{p.read(p.full()), p.read(p.full()).with("If-None-Match: *")} {
			a := p.do(r)
			control := strings.ToLower(strings.Join(a.header.Values("Cache-Control"), ","))
			if strings.Contains(control, "public") || strings.Contains(control, "s-maxage") {
				p.fault(a, "the %d to a live key has Cache-Control %q", a.status, control)
			}
		}
	},
	"auth/two-headers": func(p *probe) {
		good, bad := bearer(p.full()), bearer(flipLast(p.full()))
		for _, lines := range [][]string{{good, bad}, {bad, good}} {
			if a := p.do(p.read("").with(lines...).anew()); a.ok() {
				p.fault(a, "two Authorization headers: got %d", a.status)
			}
		}
	},
	"auth/scheme-case": func(p *probe) {
		for _, scheme := range []string{"bearer", "BEARER"} {
			p.wantOK("Authorization: "+scheme, p.do(p.read("").with("Authorization: "+scheme+" "+p.full()).anew()))
		}
	},
}
