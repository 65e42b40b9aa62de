package keystore_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// scanner finds the tokens of a service as a secret scanner does.
func scanner(s keystore.Service) *regexp.Regexp {
	return regexp.MustCompile(`\b` + strings.ReplaceAll(s.Pattern(), "(", "(?:") + `\b`)
}

const scanEntropy = 3 // of the rule in the example

// entropy is Shannon's, in bits a character, as scanners compute it.
func entropy(s string) (bits float64) {
	counts := make(map[rune]float64)
	for _, c := range s {
		counts[c]++
	}
	for _, n := range counts {
		p := n / float64(len(s))
		bits -= p * math.Log2(p)
	}
	return bits
}

func TestPatternFindsKeys(t *testing.T) {
	for _, f := range []keystore.Service{{}, {Prefix: "acme2"}} {
		pattern := scanner(f)
		for i := range 400 {
			key := f.Generate([]keystore.Environment{keystore.Production, keystore.Sandbox}[i%2]).Reveal()
			if bits := entropy(key); bits < scanEntropy+0.5 {
				t.Fatalf("%s has %.2f bits a character, and the rule wants %d", key, bits, scanEntropy)
			}
			for _, text := range []string{key, "KEY=" + key, `{"key":"` + key + `"}`, "Bearer " + key + "\n",
				"https://a/?key=" + key + "&b", key + ". A sentence", "-H 'Authorization: Bearer " + key + "'"} {
				if got := pattern.FindString(text); got != key {
					t.Fatalf("in %q found %q", text, got)
				}
			}
		}
	}
}

func TestPatternNearMisses(t *testing.T) {
	pattern := scanner(keystore.Service{})
	key := withChecksum("svc_live_" + strings.Repeat("Az09", 8))
	for _, text := range []string{
		key[:len(key)-1],                // cut off
		key + "0",                       // too long
		key + "_0",                      // part of a name
		"x" + key,                       // another prefix
		"my_" + key,                     // part of a name
		"SVC" + key[3:],                 // capitals
		"svc_prod_" + key[9:],           // no environment
		"svc_pub_" + key[9:],            // meant to be public
		"svc-live-" + key[9:],           // hyphens
		key[:20] + "-" + key[21:],       // a character that no key has
		key[:20] + "\n" + key[20:],      // two lines
		"svc_live_…",                    // documentation
		"svc_live_YOUR_API_KEY",         // a placeholder
		"svc_live_" + key[9:30] + " ok", // a beginning
	} {
		if got := pattern.FindString(text); got != "" {
			t.Errorf("in %q found %q", text, got)
		}
	}
	for _, key := range []string{key, asChild(key[:len(key)-6])} {
		if got := pattern.FindString(key); got != key {
			t.Errorf("in the key found %q", got)
		}
	}
	// What the pattern takes for a key and the checksum does not.
	if mistyped := key[:12] + "x" + key[13:]; pattern.FindString(mistyped) == "" ||
		reasonOf(t, keystore.Service{}, mistyped) != badChecksum {
		t.Errorf("%q: want it found, and told from a key by its checksum", mistyped)
	}
	for _, placeholder := range []string{"svc_live_" + strings.Repeat("x", 38), "svc_test_" + strings.Repeat("0", 38),
		"svc_live_" + strings.Repeat("ab", 19)} {
		if bits := entropy(placeholder); pattern.FindString(placeholder) == "" || bits >= scanEntropy {
			t.Errorf("%s has %.2f bits a character, want it to match and be under %d", placeholder, bits, scanEntropy)
		}
	}
}
