package rules

import (
	"crypto/rand"
	"maps"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
)

var authRules = []Rule{
	{"auth/live-key", "A request with a live key that has the scope is answered.", "contract, section 5", fullKey, func(p *probe) {
		p.wantOK("GET "+p.target.Read+" with the full key", p.do(p.read(bearer(p.target.Full))))
	}},
	{"auth/missing-key", "A request without a key gets 401.", "contract, section 5", 0, func(p *probe) {
		p.refused401("no Authorization")
		p.refused401("an empty Authorization", "Authorization: ")
		p.refused401("a scheme alone", "Authorization: Bearer")
		p.refused401("a scheme and a space", "Authorization: Bearer ")
	}},
	{"auth/other-scheme", "A key counts only as a Bearer token; under another scheme or none the request gets 401.", "contract, section 5", fullKey, func(p *probe) {
		key := p.target.Full
		for _, value := range []string{key, "Basic " + key, "Token " + key, "ApiKey " + key, "Bearer" + key, "Bearer:" + key} {
			p.refused401(strings.Replace(value, key, "KEY", 1), "Authorization: "+value)
		}
	}},
	{"auth/key-elsewhere", "A key counts only in the Authorization header, not in the query, a cookie or another header.", "contract, section 5", fullKey, func(p *probe) {
		key := p.target.Full
		for _, name := range []string{"api_key", "access_token", "key", "token"} {
			r := p.read()
			r.path += "?" + name + "=" + key
			p.want("the key as the parameter "+name, p.do(r), 401)
		}
		for _, name := range []string{"X-Api-Key", "Api-Key", "X-Auth-Token", "Proxy-Authorization"} {
			p.refused401("the key in "+name, name+": "+key)
		}
		p.refused401("the key in a cookie", "Cookie: api_key="+key+"; token="+key)
	}},
	{"auth/altered-key", "A key that was altered, cut off or made up gets 401.", "contract, section 5", fullKey, func(p *probe) {
		for what, key := range altered(p.target.Full) {
			p.refused401(what, bearer(key))
		}
	}},
	{"auth/odd-bytes", "A key with bytes that no key has gets 401.", "contract, section 5", fullKey, func(p *probe) {
		key := p.target.Full
		for _, value := range []string{key + "\x80", key + "é", `"` + key + `"`, key + ",", key + " x", key + "%00", key + `\`, key + "=="} {
			p.refused401(strings.Replace(value, key, "KEY", 1), bearer(value))
		}
	}},
	{"auth/oversized-key", "A key longer than any key gets 401.", "contract, section 5", fullKey, func(p *probe) {
		p.refused401("the key and 3,000 letters", bearer(p.target.Full+strings.Repeat("a", 3000)))
		p.refused401("3,000 letters", bearer(strings.Repeat("a", 3000)))
	}},
	{"auth/other-environment", "A key whose environment was edited from live to test, or back, gets 401.", "contract, section 5", fullKey, func(p *probe) {
		key, other := p.target.Full, swapped(p.target.Full)
		if key == other {
			p.skipf("the key names no environment, neither _live_ nor _test_")
		}
		p.refused401("the other environment", bearer(other))
	}},
	{"auth/revoked-key", "A revoked key gets 401, not 403: only a live key can lack a scope.", "contract, section 5", revokedKey, func(p *probe) {
		p.refused401("the revoked key", bearer(p.target.Revoked))
	}},
	{"auth/no-way-around", "No spelling of the path and no method reads without a key.", "contract, section 5", 0, func(p *probe) {
		p.noSpellingReads("")
	}},
	{"auth/before-routing", "Without a key, unknown paths and methods get 401 too, so that nothing is told about the paths.", ours, 0, func(p *probe) {
		unknown := p.read()
		unknown.path += "/contract-unknown"
		p.want("an unknown path", p.do(unknown), 401)
		method := p.read()
		method.method = "DELETE"
		p.want("DELETE", p.do(method), 401)
		double := p.read()
		double.path = "/" + double.path
		p.want("a doubled slash", p.do(double), 401)
	}},
	{"auth/scheme-case", "The scheme is case-insensitive.", "RFC 9110, section 11.1", fullKey, func(p *probe) {
		p.wantOK("bearer", p.do(p.read("Authorization: bearer "+p.target.Full)))
		p.wantOK("BEARER", p.do(p.read("Authorization: BEARER "+p.target.Full)))
	}},
	{"auth/duplicates", "Two different Authorization lines get 401, whichever comes first.", ours, fullKey, func(p *probe) {
		good, bad := bearer(p.target.Full), bearer("contract-unknown")
		p.refused401("the live key first", good, bad)
		p.refused401("the live key last", bad, good)
	}},
	{"auth/challenge", "A 401 carries a Bearer challenge, without an error where no key was sent.", "RFC 6750, section 3", 0, func(p *probe) {
		if c := p.challenge(p.refused401("no key")); strings.Contains(c, "error=") {
			p.failf("without a key: got the challenge %q, want none with error", c)
		}
	}},
	{"auth/challenge-invalid", `The 401 for a key that is not valid has error="invalid_token".`, "RFC 6750, section 3.1", 0, func(p *probe) {
		if c := p.challenge(p.refused401("an unknown key", bearer("contract-unknown"))); !strings.Contains(c, `error="invalid_token"`) {
			p.failf("with an unknown key: got the challenge %q", c)
		}
	}},
	{"auth/key-not-repeated", "A refusal does not repeat the key that was sent.", ours, 0, func(p *probe) {
		key := "contract-" + rand.Text()
		a := p.refused401("an unknown key", bearer(key))
		if strings.Contains(a.body, key) {
			p.failf("the body of the 401 repeats the key: %v", a)
		}
		for name, values := range a.header {
			if strings.Contains(strings.Join(values, " "), key) {
				p.failf("the header %s of the 401 repeats the key", name)
			}
		}
	}},
	{"auth/not-cached", "A 401 says Cache-Control: no-store.", ours, 0, func(p *probe) {
		if a := p.refused401("no key"); !strings.Contains(a.header.Get("Cache-Control"), "no-store") {
			p.failf("got Cache-Control %q", a.header.Values("Cache-Control"))
		}
	}},
}

// refused401 reads with these header lines and wants a 401.
func (p *probe) refused401(what string, lines ...string) answer {
	return p.want(what, p.do(p.read(lines...)), 401)
}

// challenge returns the one Bearer challenge of a 401.
func (p *probe) challenge(a answer) string {
	values := a.header.Values("Www-Authenticate")
	for _, v := range values {
		if len(v) >= len("bearer") && strings.EqualFold(v[:len("bearer")], "bearer") {
			return v
		}
	}
	p.failf("the %d carries the challenges %q, want a Bearer one", a.status, values)
	panic("not reached")
}

// altered makes keys that are not the one given, each wrong in one way.
func altered(key string) map[string]string {
	last, middle := key[len(key)-1], len(key)/2
	flip := byte('a')
	if last == flip {
		flip = 'b'
	}
	swap := []byte(key)
	for i := middle; i+1 < len(swap); i++ {
		if swap[i] != swap[i+1] {
			swap[i], swap[i+1] = swap[i+1], swap[i]
			break
		}
	}
	keys := map[string]string{
		"the last character changed": key[:len(key)-1] + string(flip),
		"two characters exchanged":   string(swap),
		"the last character missing": key[:len(key)-1],
		"the first half alone":       key[:middle],
		"a character too many":       key + "0",
		"capitals":                   strings.ToUpper(key),
		"small letters":              strings.ToLower(key),
		"another key of this shape":  another(key),
	}
	maps.DeleteFunc(keys, func(_, altered string) bool { return altered == key })
	return keys
}

// another returns a key of the same shape that nobody issued.
func another(key string) string {
	prefix, _, _ := strings.Cut(key, "_")
	format := keystore.Format{Prefix: prefix}
	if format.Validate() == nil {
		if environment, err := format.Parse(key); err == nil {
			return format.Generate(environment).Reveal()
		}
	}
	// Not a key of this module: whatever follows the last underscore is random.
	cut := strings.LastIndexByte(key, '_') + 1
	random := rand.Text()
	for len(random) < len(key)-cut {
		random += rand.Text()
	}
	return key[:cut] + random[:len(key)-cut]
}

// swapped exchanges the environment that a key names.
func swapped(key string) string {
	if other := strings.Replace(key, "_live_", "_test_", 1); other != key {
		return other
	}
	return strings.Replace(key, "_test_", "_live_", 1)
}
