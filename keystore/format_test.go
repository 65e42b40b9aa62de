package keystore_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// withChecksum appends what the package's documentation says a checksum is,
// computed in another way than the package does.
func withChecksum(s string) string {
	// Both the order of the digits and that of the letters differ in big.Int.
	text := big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))).Text(62)
	swapped := strings.Map(func(r rune) rune {
		if r == '0' || '1' <= r && r <= '9' {
			return r
		}
		return r ^ 0x20
	}, text)
	return s + strings.Repeat("0", 6-len(swapped)) + swapped
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
func reasonOf(t *testing.T, f keystore.Service, token string) string {
	t.Helper()
	got, err := f.Parse(token)
	if err == nil {
		return ""
	}
	var refused keystore.TokenError
	if !errors.As(err, &refused) || refused == "" || len(got.Digests()) > 0 {
		t.Fatalf("Parse(%q) = %v, %v, want no digest and a TokenError with a reason", token, got, err)
	}
	return string(refused)
}

func TestGenerate(t *testing.T) {
	pattern := regexp.MustCompile(`^svc_(live|test)_[0-9A-Za-z]{38}$`)
	seen := make(map[string]bool)
	for i := range 20_000 {
		environment, word := keystore.Production, "live"
		if i%2 == 1 {
			environment, word = keystore.Sandbox, "test"
		}
		token := keystore.Service{}.Generate(environment).Reveal()
		if !pattern.MatchString(token) || token[4:8] != word {
			t.Fatalf("Generate(%s) = %q, want it to match %v with %q", environment, token, pattern, word)
		}
		if got, err := (keystore.Service{}).Parse(token); got.Environment != environment || err != nil {
			t.Fatalf("Parse(%q) = %q, %v, want %q", token, got.Environment, err, environment)
		}
		if want := withChecksum(token[:len(token)-6]); token != want {
			t.Fatalf("Generate(%s) = %q, want the checksum of %q", environment, token, want)
		}
		if seen[token] {
			t.Fatalf("Generate returned %q twice", token)
		}
		seen[token] = true
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
	live := withChecksum("svc_live_" + random)
	for _, c := range []struct {
		token string
		want  string
	}{
		{live, ""},
		{withChecksum("svc_test_" + random), ""},
		{strings.Replace(live, "live", "test", 1), badChecksum},
		{"", otherPrefix},
		{"svc", otherPrefix},
		{"svc_", unknownEnvironment},
		{"svc_live", badLength},
		{"svc_live_", badLength},
		{live[:len(live)-1], badLength},
		{live + "0", badLength},
		{live + live, badLength},
		{withChecksum("svc_prod_" + random), unknownEnvironment},
		{withChecksum("svc_LIVE_" + random), unknownEnvironment},
		{withChecksum("svc__" + random), unknownEnvironment},
		{withChecksum("SVC_LIVE_" + random), otherPrefix},
		{withChecksum("xsvc_live_" + random), otherPrefix},
		{withChecksum("svcx_live_" + random), otherPrefix},
		{withChecksum("sk_live_" + random), otherPrefix},
		{withChecksum("svc-live-" + random), otherPrefix},
		{withChecksum("svc_pub_" + random), publishable},
		{"svc_pub_live_1234", publishable},
		{"svc_pub", publishable},
		{withChecksum("svc_live_" + random[:31] + "_"), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "-"), badCharacter},
		{withChecksum("svc_live_-" + random[:31]), badCharacter},
		{withChecksum("svc_live__" + random[:31]), badCharacter},
		{"svc_live_" + strings.Repeat("x", 256-9), badLength},
		{"svc_live_" + strings.Repeat("x", 257-9), tooLong},
		{withChecksum("svc_live_" + random[:31] + "."), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "/"), badCharacter},
		{withChecksum("svc_live_" + random[:31] + ":"), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "@"), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "["), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "`"), badCharacter},
		{withChecksum("svc_live_" + random[:31] + "{"), badCharacter},
		{`"` + live + `"`, badCharacter},
		{live + "\n", badCharacter},
		{" " + live, badCharacter},
		{live[:20] + "\x00" + live[21:], badCharacter},
		{live[:20] + "é" + live[22:], badCharacter},
		{live[:20] + "%00" + live[23:], badCharacter},
		{live[:20] + `\` + live[21:], badCharacter},
		{live[:20] + " " + live[21:], badCharacter},
		{"svc_live_" + strings.Repeat("a", 247), badLength},
		{"svc_live_" + strings.Repeat("a", 248), tooLong},
		{strings.Repeat("\x00", 1<<20), tooLong},
	} {
		if got := reasonOf(t, keystore.Service{}, c.token); got != c.want {
			t.Errorf("Parse(%.80q) was refused because %q, want %q", c.token, got, c.want)
		}
	}
}

// No typing error reaches the store.
func TestParseFindsTypos(t *testing.T) {
	for range 20 {
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

func TestParseRefusesNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	token := []byte("svc_live_" + strings.Repeat("0", 38))
	for range 200_000 {
		for i := 9; i < len(token); i++ {
			token[i] = base62[random.IntN(62)]
		}
		if reasonOf(t, keystore.Service{}, string(token)) == "" {
			t.Fatalf("noise was accepted: %q", token)
		}
	}
}

func TestFormatErrorsHoldNothingOfTheToken(t *testing.T) {
	secret := "Zq7Xk2Wv9Jp4"
	for _, token := range []string{
		"svc_live_" + secret, "svc_" + secret, secret, `"` + secret, "svc_pub_" + secret,
		strings.Repeat(secret, 30), withChecksum("svc_live_"+strings.Repeat(secret, 3)[:32]) + "0",
		"svc_live_" + strings.Repeat(secret, 4)[:38],
	} {
		_, err := keystore.Service{}.Parse(token)
		if err == nil {
			t.Fatalf("Parse(%q) accepted it", token)
		}
		for i := range len(secret) - 3 {
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret[i:i+3]) {
				t.Errorf("the error for %q is %q, which holds %q of it", token, text, secret[i:i+3])
			}
		}
	}
	if got, want := keystore.TokenError(badLength).Error(), "keystore: the key has the wrong length; it may have been cut off"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPrefix(t *testing.T) {
	f := keystore.Service{Prefix: "acme2"}
	token := f.Generate(keystore.Sandbox).Reveal()
	if !strings.HasPrefix(token, "acme2_test_") || reasonOf(t, f, token) != "" {
		t.Errorf("a Format with prefix acme2 generated %q", token)
	}
	if got := reasonOf(t, keystore.Service{}, token); got != otherPrefix {
		t.Errorf("the default Format refused %q because %q, want %q", token, got, otherPrefix)
	}
	for prefix, ok := range map[string]bool{
		"": true, "svc": true, "a": true, "0": true, "az09": true, "a/": false, "a:": false, "a`": false, "a{": false, "abcdefghijklmnop": true,
		"abcdefghijklmnopq": false, "Svc": false, "my_svc": false, "s-c": false, "s c": false, "é": false, ".*": false,
	} {
		for _, f := range []keystore.Service{{Prefix: prefix}, {Live: prefix}, {Test: prefix}} {
			if _, err := f.Resolve(nil); (err == nil) != ok {
				t.Errorf("%+v.Resolve(nil): got %v, want it valid: %v", f, err, ok)
			}
			for method, call := range map[string]func(){
				"Generate":  func() { f.Generate(keystore.Sandbox) },
				"NewCached": func() { keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Service: f}) },
				"NewIssuer": func() { keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{Service: f}) },
			} {
				if panicked := panics(call); panicked == ok {
					t.Errorf("%s with %+v panicked: %v, want %v", method, f, panicked, !ok)
				}
			}
		}
	}
	if !panics(func() { keystore.Service{}.Generate("staging") }) {
		t.Error("Generate for an unknown environment did not panic")
	}
}

// A text that begins like a token of this service is claimed, complete or not.
func TestClaims(t *testing.T) {
	hex := func(string) bool { return true }
	f := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}, {Name: "v0", Match: hex}}}
	for token, want := range map[string]bool{
		"svc_live_x": true, "svc_": true, "acme_x": true, "acme_": true,
		"": false, "svc": false, "svcx_live_x": false, "acme": false, "eyJhbGciOiJIUzI1NiJ9.e30.x": false,
	} {
		if got := f.Claims(token); got != want {
			t.Errorf("Claims(%q) = %t, want %t", token, got, want)
		}
	}
	if (keystore.Service{}).Claims("acme_x") {
		t.Error("a Format without a legacy shape claims acme_x")
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}

func TestPattern(t *testing.T) {
	if got, want := (keystore.Service{}).Pattern(), `svc_(live|test)_[0-9A-Za-z]{38}`; got != want {
		t.Errorf("Pattern() = %q, want %q", got, want)
	}
	found := regexp.MustCompile(keystore.Service{}.Pattern()).FindString("key=" + withChecksum("svc_test_"+strings.Repeat("x", 32)) + "\n")
	if reasonOf(t, keystore.Service{}, found) != "" {
		t.Errorf("the pattern found %q in a text, want the token", found)
	}
}
