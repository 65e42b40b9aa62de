package keystore_test

import (
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// withChecksum appends what the package's documentation says a checksum is,
// computed in another way than the package does.
func withChecksum(s string) string { return s + sumOf(s) }

// asChild is withChecksum for a child.
func asChild(s string) string { return s + sumOf("delegated:"+s) }

func sumOf(s string) string {
	// Both the order of the digits and that of the letters differ in big.Int.
	text := big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))).Text(62)
	swapped := strings.Map(func(r rune) rune {
		if r == '0' || '1' <= r && r <= '9' {
			return r
		}
		return r ^ 0x20
	}, text)
	return strings.Repeat("0", 6-len(swapped)) + swapped
}

// What a refused token's sender is told.
const (
	tooLong            = "The key is longer than any key."
	badCharacter       = "The key has a character that no key has; it may have been copied with a quote or a line break."
	otherPrefix        = "The key does not begin with the prefix of this service."
	publishable        = "This is a publishable key, which is made for browsers. This API needs a secret key."
	unknownEnvironment = "The key names no environment of this service; it may be mistyped."
	badLength          = "The key has the wrong length; it may have been cut off."
	badChecksum        = "The key is mistyped or has been altered."
)

// reasonOf returns why a token was refused, or "" when it was accepted.
func parse(t *testing.T, s keystore.Service, text string) keystore.Token {
	t.Helper()
	got, err := s.Parse(text)
	must(t, err)
	return got
}

func reasonOf(t *testing.T, f keystore.Service, token string) string {
	t.Helper()
	got, err := f.Parse(token)
	if err == nil {
		return ""
	}
	refused, ok := err.(keystore.TokenError) // itself: what wraps one could quote the token
	if !ok || refused == "" || len(got.Digests()) > 0 {
		t.Fatalf("Parse(%q) = %v, %v, want no digest and a TokenError with a reason", token, got, err)
	}
	return string(refused)
}

func TestGenerate(t *testing.T) {
	pattern := regexp.MustCompile(`^svc_(live|test)_[0-9A-Za-z]{38}$`)
	seen := make(map[string]bool)
	for i := range 4000 {
		environment, word := keystore.Production, "live"
		if i%2 == 1 {
			environment, word = keystore.Sandbox, "test"
		}
		var ancestors []*keystore.Key
		sum, other := withChecksum, asChild
		if i%4 > 1 {
			ancestors, sum, other = make([]*keystore.Key, 1), asChild, withChecksum
		}
		token := keystore.Service{}.Generate(environment, ancestors...).Reveal()
		body := token[:len(token)-6]
		if !pattern.MatchString(token) || token[4:8] != word || token != sum(body) || token == other(body) {
			t.Fatalf("Generate(%s) of a child: %t = %q, want it to match %v with %q, and its checksum",
				environment, ancestors != nil, token, pattern, word)
		}
		if got, err := (keystore.Service{}).Parse(token); err != nil || got.Environment != environment ||
			got.Child != (ancestors != nil) || got.Digests()[0] != keystore.DigestOf(token) {
			t.Fatalf("Parse(%q) = %+v, %v, want %q, a child's: %t", token, got, err, environment, ancestors != nil)
		}
		if seen[token] {
			t.Fatalf("Generate returned %q twice", token)
		}
		seen[token] = true
	}
	if got, _ := (keystore.Service{}).Parse(withChecksum("svc_test_" + strings.Repeat("aB", 16))); got.Child {
		t.Error("a token is taken for that of a child")
	}
}

func TestGenerateIsFair(t *testing.T) {
	var counts [256]int
	const tokens = 10_000
	for range tokens {
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		for i := range 32 {
			counts[token[9+i]]++
		}
	}
	want := float64(tokens*32) / 62
	var chi2 float64
	for _, c := range []byte(base62) {
		d := float64(counts[c]) - want
		chi2 += d * d / want
	}
	// With 61 degrees of freedom a fair source exceeds this once in ten million
	// runs. Bytes taken modulo 62 give more than 1500 here.
	if chi2 > 140 {
		t.Errorf("the characters of %d tokens have a chi-squared of %.0f, want at most 140", tokens, chi2)
	}
}

func TestParse(t *testing.T) {
	random := strings.Repeat("aB3", 11)[:32]
	of := func(begin string) string { return withChecksum(begin + random) }
	live := of("svc_live_")
	odd := []string{withChecksum("svc_live_-" + random[:31]), withChecksum("svc_live__" + random[:31])}
	for _, c := range "_-./:@[`{" { // beside the characters of a key
		odd = append(odd, withChecksum("svc_live_"+random[:31]+string(c)))
	}
	for want, tokens := range map[string][]string{
		"":                 {live, of("svc_test_")},
		badChecksum:        {strings.Replace(live, "live", "test", 1)},
		otherPrefix:        {"", "svc", of("SVC_LIVE_"), of("xsvc_live_"), of("svcx_live_"), of("sk_live_"), of("svc-live-")},
		unknownEnvironment: {"svc_", of("svc_prod_"), of("svc_LIVE_"), of("svc__")},
		publishable:        {"svc_pub", "svc_pub_live_1234", of("svc_pub_")},
		badLength: {"svc_live", "svc_live_", live[:len(live)-1], live + "0", live + live,
			"svc_live_" + strings.Repeat("x", 256-9)},
		tooLong: {"svc_live_" + strings.Repeat("x", 257-9), strings.Repeat("\x00", 1<<20)},
		badCharacter: append(odd, `"`+live+`"`, live+"\n", " "+live, live[:20]+"\x00"+live[21:],
			live[:20]+"é"+live[22:], live[:20]+"%00"+live[23:], live[:20]+`\`+live[21:], live[:20]+" "+live[21:]),
	} {
		for _, token := range tokens {
			if got := reasonOf(t, keystore.Service{}, token); got != want {
				t.Errorf("Parse(%.80q) was refused because %q, want %q", token, got, want)
			}
		}
	}
}

func TestDigestOf(t *testing.T) {
	for _, token := range []string{"", "a", "svc_live_" + strings.Repeat("0", 38), strings.Repeat("a", 256),
		strings.Repeat("a", 257), strings.Repeat("a", 10_000)} {
		if got, want := keystore.DigestOf(token), keystore.Digest(sha256.Sum256([]byte(token))); got != want {
			t.Errorf("DigestOf of %d bytes = %x, want their SHA-256 %x", len(token), got, want)
		}
	}
}

// No typing error reaches the store.
func TestParseFindsTypos(t *testing.T) {
	for range 5 {
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		for i := range len(token) {
			for _, c := range []byte(base62 + "_-. ") {
				if typo := token[:i] + string(c) + token[i+1:]; typo != token && reasonOf(t, keystore.Service{}, typo) == "" {
					t.Errorf("%q was accepted for %q", typo, token)
				}
			}
			if i > 0 && token[i] != token[i-1] {
				swapped := token[:i-1] + string(token[i]) + string(token[i-1]) + token[i+1:]
				if reasonOf(t, keystore.Service{}, swapped) == "" {
					t.Errorf("%q was accepted for %q", swapped, token)
				}
			}
			if reasonOf(t, keystore.Service{}, token[:i]) == "" {
				t.Errorf("%q was accepted for %q", token[:i], token)
			}
		}
	}
}

const incomplete = "The key is mistyped or was not copied whole."

func TestParseLegacy(t *testing.T) {
	present := withChecksum("svc_live_" + strings.Repeat("aB", 16))
	uuid := "3f0c8f0e-7d1c-4c8e-9b1f-0a2b3c4d5e6f"
	twoPeppers := []keystore.Digest{hmacOf([]byte("the new pepper"), acme("0")),
		hmacOf([]byte("the old pepper"), acme("0"))}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{
		legacyHMAC([]byte("the new pepper"), []byte("the old pepper")),
		{Name: "uuid", Match: regexp.MustCompile("^[0-9a-f-]{36}$").MatchString},
		{Name: "same-prefix", Prefix: "acme_",
			Match: func(token string) bool { return strings.HasSuffix(token, "=") || strings.HasSuffix(token, "0") }},
		{Name: "ours", Prefix: "svc_live_", Match: func(token string) bool { return len(token) == 33 }},
		{Name: "older", Prefix: "svc_", Match: func(token string) bool { return len(token) == 30 }},
		{Name: "checked", Prefix: "chk_", Digests: func(token string) []keystore.Digest {
			if strings.HasSuffix(token, "!") {
				return nil
			}
			return []keystore.Digest{keystore.DigestOf(token[4:])}
		}},
	}}
	for _, c := range []struct {
		token       string
		environment keystore.Environment
		legacy      string
		digests     []keystore.Digest
		refused     string
	}{
		{present, keystore.Production, "", []keystore.Digest{keystore.DigestOf(present)}, ""},
		{acme("0"), "", "v1", twoPeppers, ""}, // the third one matches as well
		{uuid, "", "uuid", []keystore.Digest{keystore.DigestOf(uuid)}, ""},
		{"acme_abc.def~ghi/jkl+mno=", "", "same-prefix",
			[]keystore.Digest{keystore.DigestOf("acme_abc.def~ghi/jkl+mno=")}, ""},
		{"chk_0123456789ab", "", "checked", []keystore.Digest{keystore.DigestOf("0123456789ab")}, ""},
		{"svc_live_" + strings.Repeat("a", 24), "", "ours",
			[]keystore.Digest{keystore.DigestOf("svc_live_" + strings.Repeat("a", 24))}, ""},
		{"chk_" + strings.Repeat("a", 252), "", "checked",
			[]keystore.Digest{keystore.DigestOf(strings.Repeat("a", 252))}, ""},
		{"chk_" + strings.Repeat("a", 253), "", "", nil, tooLong},
		{"chk_0123456789a", "", "", nil, incomplete}, // 15 bytes
		{"chk_", "", "", nil, incomplete},
		{"svc_0123456789abcdef012345678", "", "", nil, incomplete}, // a typo in a key of "older"
		{"chk_0123456789a!", "", "", nil, incomplete},
		{acme("g"), "", "", nil, incomplete},
		{acme("A"), "", "", nil, incomplete},
		{"ACME_" + strings.Repeat("0", 40), "", "", nil, otherPrefix},
		{acme("1")[:44], "", "", nil, incomplete},
		{acme("1") + "\n", "", "", nil, incomplete},
		{`"` + acme("1"), "", "", nil, badCharacter},
		{uuid[:35], "", "", nil, otherPrefix},
		{present[:46], "", "", nil, badLength},
		{present[:46] + "0", "", "", nil, badChecksum},
		{strings.Replace(present, "live", "pub", 1), "", "", nil, publishable},
		{"", "", "", nil, otherPrefix},
	} {
		got, err := format.Parse(c.token)
		reason := ""
		if refused, ok := err.(keystore.TokenError); ok {
			reason = string(refused)
		}
		if reason != c.refused || (err == nil) != (c.refused == "") || got.Environment != c.environment ||
			got.Legacy != c.legacy || !slices.Equal(got.Digests(), c.digests) {
			t.Errorf("Parse(%.60q) = %+v, %v, want environment %q, legacy %q, digests %x, refused because %q",
				c.token, got, err, c.environment, c.legacy, c.digests, c.refused)
		}
	}
}

// When a LegacyFormat does not keep its contract, no token is called wrong.
func TestParseOfABrokenFormat(t *testing.T) {
	for n, ok := range map[int]bool{4: true, 5: false} {
		format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_",
			Digests: func(string) []keystore.Digest { return make([]keystore.Digest, n) }}}}
		c, err := format.Parse(acme("0"))
		var refused keystore.TokenError
		if (err == nil) != ok || errors.As(err, &refused) || ok && len(c.Digests()) != n || !ok &&
			!strings.Contains(err.Error(), `"v1" gave 5 digests, want at most 4`) {
			t.Errorf("with %d digests got %d and %v", n, len(c.Digests()), err)
		}
	}
}

// A token of the present shape costs no more than it does without legacy
// formats.
func TestParseOfThePresentShape(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name:    "any",
		Match:   func(string) bool { t.Error("a token of the present shape was matched"); return true },
		Digests: func(string) []keystore.Digest { t.Error("a token of the present shape was hashed"); return nil },
	}}}
	store, cached := newCached(keystore.CacheOptions{})
	for _, s := range []keystore.Store{store, cached} {
		token, _ := issue(t, issuing.New(store, issuing.Options{Service: format}), grant())
		for _, text := range []string{token, keystore.Service{}.Generate(keystore.Sandbox).Reveal()} {
			c := parse(t, format, text)
			store.wantCalls(t, 0, "before the look-up")
			if _, err := c.Lookup(t.Context(), s); (err == nil) != (text == token) {
				t.Errorf("Lookup returned %v", err)
			}
			store.wantCalls(t, 1, "a token of the present shape")
		}
	}
}

func FuzzParse(f *testing.F) {
	live := withChecksum("svc_live_" + strings.Repeat("0", 32))
	for _, token := range []string{live, asChild(live[:len(live)-6]), strings.Replace(live, "live", "test", 1), live[:40],
		"svc_pub_1", "svc_live_" + strings.Repeat("-", 30), ""} {
		f.Add(token)
	}
	pattern := regexp.MustCompile("^(?:" + keystore.Service{}.Pattern() + ")$")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := keystore.Service{}.Parse(token)
		if err != nil {
			if len(got.Digests()) > 0 {
				t.Errorf("Parse(%q) returned %v beside %v", token, got, err)
			}
			return
		}
		if !pattern.MatchString(token) {
			t.Errorf("Parse(%q) accepted what Pattern does not match", token)
		}
		if body := token[:len(token)-6]; withChecksum(body) != token && !got.Child || asChild(body) != token && got.Child {
			t.Errorf("Parse(%q) accepted a wrong checksum", token)
		}
		words := map[keystore.Environment]string{keystore.Production: "_live_", keystore.Sandbox: "_test_"}
		if words[got.Environment] != token[3:9] {
			t.Errorf("Parse(%q) = %q", token, got.Environment)
		}
	})
}

// A token has the present shape or a legacy one, and never both; what is
// refused is refused with a reason.
func FuzzParseLegacy(f *testing.F) {
	for _, token := range []string{withChecksum("svc_live_" + strings.Repeat("0", 32)), acme("0"), acme("0") + "0",
		"acme_", "svc_live_x", ""} {
		f.Add(token)
	}
	format := peppered("the new pepper", "the old pepper")
	pattern := regexp.MustCompile("^acme_[0-9a-f]{40}$")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := format.Parse(token)
		_, parseErr := keystore.Service{}.Parse(token)
		var refused keystore.TokenError
		switch {
		case err != nil:
			if !errors.As(err, &refused) || len(c.Digests()) > 0 || parseErr == nil || pattern.MatchString(token) {
				t.Errorf("Parse(%q) = %+v, %v", token, c, err)
			}
		case c.Legacy == "":
			if parseErr != nil || len(c.Digests()) != 1 || c.Digests()[0] != keystore.DigestOf(token) {
				t.Errorf("Parse(%q) = %+v, which Parse refuses: %v", token, c, parseErr)
			}
		default:
			if parseErr == nil || !pattern.MatchString(token) || len(c.Digests()) != 2 || c.Environment != "" {
				t.Errorf("Parse(%q) = %+v, want what the pattern matches and Parse refuses", token, c)
			}
		}
	})
}
