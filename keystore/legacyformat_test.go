package keystore_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

var hex40 = regexp.MustCompile("^acme_[0-9a-f]{40}$").MatchString

// acme returns a token of an older system.
func acme(digit string) string { return "acme_" + strings.Repeat(digit, 40) }

func legacyHMAC(peppers ...[]byte) keystore.LegacyFormat {
	return keystore.LegacyFormat{Name: "v1", Prefix: "acme_", Match: hex40, Digests: keystore.HMACDigests(peppers...)}
}

// peppered is a service that also takes the tokens of an older system.
func peppered(peppers ...string) keystore.Service {
	var all [][]byte
	for _, p := range peppers {
		all = append(all, []byte(p))
	}
	return keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(all...)}}
}

// hmacOf is how the older system hashed.
func hmacOf(pepper []byte, token string) (d keystore.Digest) {
	h := hmac.New(sha256.New, pepper)
	fmt.Fprint(h, token)
	copy(d[:], h.Sum(nil))
	return d
}

func TestHMACDigests(t *testing.T) {
	// RFC 4231, test case 1.
	got := keystore.HMACDigests(bytes.Repeat([]byte{0x0b}, 20))("Hi There")
	if want := "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"; len(got) != 1 ||
		hex.EncodeToString(got[0][:]) != want {
		t.Errorf("got %x, want %s", got, want)
	}
	old, newer := []byte("the old pepper"), []byte("the new pepper")
	digests := keystore.HMACDigests(newer, old)
	want := []keystore.Digest{hmacOf(newer, "token"), hmacOf(old, "token")}
	newer[0] = 'x' // the caller's, which may be wiped
	if got := digests("token"); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %x, want that of each pepper in order: %x", got, want)
	}
	p := func(texts ...string) (peppers [][]byte) {
		for _, text := range texts {
			peppers = append(peppers, []byte(strings.Repeat(text, 14)))
		}
		return peppers
	}
	if panics(func() { keystore.HMACDigests(p("a", "b", "c", "d")...) }) {
		t.Error("four peppers are not taken")
	}
	for _, wrong := range [][][]byte{p(), p("a", "b", "c", "d", "e"), p(""), p("a", ""), p("a", "b", "a"),
		{[]byte("13 bytes long")}} {
		if !panics(func() { keystore.HMACDigests(wrong...) }) {
			t.Errorf("HMACDigests(%q) did not panic", wrong)
		}
	}
}

func TestLegacyFormatValidate(t *testing.T) {
	for _, c := range []struct {
		legacy []keystore.LegacyFormat
		want   []string // in the error; none: valid
	}{
		{nil, nil},
		{[]keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}, {Name: strings.Repeat("a-9z", 8), Match: hex40}}, nil},
		{[]keystore.LegacyFormat{{Name: "v1", Prefix: strings.Repeat("x", 255)}}, nil},
		{[]keystore.LegacyFormat{{Name: "v1", Prefix: "a_", Match: hex40}, {Name: "v2", Prefix: "a_b"},
			{Name: "v3", Prefix: "a_"}}, nil},
		{[]keystore.LegacyFormat{{Name: "v1", Prefix: "a_"}, {Name: "v2", Prefix: "a_b"}},
			[]string{`no token reaches the legacy format "v2"`}},
		{[]keystore.LegacyFormat{{Name: "v1", Prefix: strings.Repeat("x", 256)}},
			[]string{`the prefix of the legacy format "v1"`}},
		{[]keystore.LegacyFormat{{Prefix: "acme_"}}, []string{`the name "" of a legacy format`}},
		{[]keystore.LegacyFormat{{Name: strings.Repeat("a", 33), Prefix: "acme_"}}, []string{"is not 1 to 32 characters"}},
		{[]keystore.LegacyFormat{{Name: "V1", Prefix: "acme_"}}, []string{`the name "V1"`}},
		{[]keystore.LegacyFormat{{Name: "a b", Prefix: "acme_"}}, []string{`the name "a b"`}},
		{[]keystore.LegacyFormat{{Name: "v1"}}, []string{`"v1" needs a Prefix or a Match`}},
		{[]keystore.LegacyFormat{{Name: "v1"}, {Name: "v1", Prefix: "acme_"}, {Name: "", Prefix: "x"}},
			[]string{"needs a Prefix", `two legacy formats "v1"`, `the name ""`}},
	} {
		f := keystore.Service{Legacy: c.legacy}
		_, _, err := f.Resolve(nil)
		if (err == nil) != (c.want == nil) {
			t.Errorf("Validate of %+v returned %v, want %q", c.legacy, err, c.want)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("Validate of %+v returned %v, want %q in it", c.legacy, err, text)
			}
		}
	}
}

// A pepper does not show when the configuration is printed.
func TestPeppersAreNotPrinted(t *testing.T) {
	f := peppered("secretpepper of acme")
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(verb, f); strings.Contains(text, "secretpepper") ||
			strings.Contains(text, fmt.Sprint([]byte("secret"))[1:20]) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}
