package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// wantHeeded repeats a create under a key that the server may refuse, and
// returns its first response.
func (p *probe) wantHeeded(key string) answer {
	c := p.create(0, p.full()).keyedWith(key)
	h := history{p: p}
	first := h.send("a create", c)
	if first.ok() {
		what := fmt.Sprintf("with the key %.40q of %d bytes, which was accepted, the repeat", key, len(key))
		h.send(what, c)
		h.wantOne(what)
	}
	return first
}

// wantApartAtOnce makes two creates at one time, neither of which is a repeat of
// the other.
func (p *probe) wantApartAtOnce(both ...creation) {
	p.parallel(2, func(i int) {
		a, own, foreign := p.do(both[i].anew()), both[i].marker, both[1-i].marker
		shows := func(marker string) bool { return marker != "" && strings.Contains(a.body, marker[:markerPrefix]) }
		if shows(foreign) && !shows(own) {
			p.fault(a, "of two creates at one time one got the response of the other")
		}
	})
}

// wantAllApart is wantApart for pairs of keys, by what they differ in.
func (p *probe) wantAllApart(pairs [][3]string) {
	var tried atomic.Int64
	each(p, pairs, func(keys [3]string) {
		if p.wantApart("keys that differ in "+keys[0], keys[1], keys[2]) {
			tried.Add(1)
		}
	})
	if tried.Load() == 0 {
		p.vacuousf("the server takes no such keys")
	}
}

// wantApart makes two creates with keys that are nearly the same. It returns
// false when the server refuses such keys.
func (p *probe) wantApart(what, one, two string) bool {
	u := newUUID()
	keyed := func(template, u string) creation { return p.create(0, p.full()).keyedWith(fillKey(template, u)) }
	first := p.do(keyed(one, u).request)
	c := keyed(two, u)
	w := p.watch(c)
	second := p.do(c.request)
	if !first.ok() || !second.ok() && !p.do(keyed(two, newUUID()).request).ok() {
		return false
	}
	if !second.ok() {
		p.fault(second, "%s are taken for the same: the second is answered %d", what, second.status)
	}
	p.wantOther("with "+what+" the second", second, first)
	w.made("with " + what + " the second")
	return true
}

var keyField = regexp.MustCompile(`\{[0-9a-zA-Z]+\}`)

// fillKey puts a UUID into a template, as it is, in capitals, without dashes, as
// digits or repeated to a length.
func fillKey(template, u string) string {
	bare := strings.ReplaceAll(u, "-", "")
	return keyField.ReplaceAllStringFunc(template, func(field string) string {
		switch field {
		case "{u}":
			return u
		case "{U}":
			return strings.ToUpper(u)
		case "{x}":
			return bare
		case "{n}":
			return strings.NewReplacer("a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6").Replace(bare)[:15]
		}
		n, _ := strconv.Atoi(strings.Trim(field, "{}"))
		return strings.Repeat(bare, 8)[:n]
	})
}
