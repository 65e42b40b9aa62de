package keystore_test

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// gitleaksRule reads the little TOML that a rule is written in: one table of
// strings, a number and an array of strings.
func gitleaksRule(t *testing.T, toml string) (rule map[string]string, keywords []string) {
	t.Helper()
	head, rest, _ := strings.Cut(toml, "\n")
	if head != "[[rules]]" {
		t.Fatalf("got the table %q, want [[rules]]", head)
	}
	rule = make(map[string]string)
	for line := range strings.Lines(rest) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		if _, twice := rule[name]; !ok || twice {
			t.Fatalf("got the line %q", line)
		}
		rule[name] = value
		switch {
		case strings.HasPrefix(value, "'''"): // a literal: no escapes, up to the next three quotes
			rule[name] = strings.TrimSuffix(value[3:], "'''")
			if strings.Contains(rule[name], "'") || len(rule[name]) != len(value)-6 {
				t.Errorf("got the literal %s", value)
			}
		case strings.HasPrefix(value, "["): // arrays of plain strings are written as in JSON
			if err := json.Unmarshal([]byte(value), &keywords); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		case strings.HasPrefix(value, `"`):
			var text string
			if err := json.Unmarshal([]byte(value), &text); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			rule[name] = text
		}
	}
	return rule, keywords
}

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

func TestGitleaksFindsKeys(t *testing.T) {
	for _, f := range []keystore.Service{{}, {Prefix: "acme2"}} {
		rule, keywords := gitleaksRule(t, f.Gitleaks())
		threshold, err := strconv.ParseFloat(rule["entropy"], 64)
		if err != nil || rule["id"] == "" || rule["description"] == "" {
			t.Fatalf("got the rule %q, %v", rule, err)
		}
		pattern := regexp.MustCompile(rule["regex"])
		if pattern.NumSubexp() != 0 {
			t.Errorf("%s has a group, which gitleaks takes for the secret", pattern)
		}
		for i := range 4000 {
			environment := keystore.Production
			if i%2 == 1 {
				environment = keystore.Sandbox
			}
			key := f.Generate(environment).Reveal()
			if bits := entropy(key); bits < threshold+0.5 {
				t.Fatalf("%s has %.2f bits a character, and the rule wants %.1f", key, bits, threshold)
			}
			if !strings.Contains(strings.ToLower(key), keywords[0]) &&
				!strings.Contains(strings.ToLower(key), keywords[1]) {
				t.Fatalf("%s has none of the keywords %q", key, keywords)
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

func TestGitleaksNearMisses(t *testing.T) {
	rule, _ := gitleaksRule(t, keystore.Service{}.Gitleaks())
	pattern := regexp.MustCompile(rule["regex"])
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
	threshold, _ := strconv.ParseFloat(rule["entropy"], 64)
	for _, placeholder := range []string{"svc_live_" + strings.Repeat("x", 38), "svc_test_" + strings.Repeat("0", 38),
		"svc_live_" + strings.Repeat("ab", 19)} {
		if bits := entropy(placeholder); pattern.FindString(placeholder) == "" || bits >= threshold {
			t.Errorf("%s has %.2f bits a character, want it to match and be under %.1f", placeholder, bits, threshold)
		}
	}
}

func TestPattern(t *testing.T) {
	if got, want := (keystore.Service{}).Pattern(), `svc_(live|test)_[0-9A-Za-z]{38}`; got != want {
		t.Errorf("Pattern() = %q, want %q", got, want)
	}
	found := regexp.MustCompile(keystore.Service{}.Pattern()).FindString("key=" +
		withChecksum("svc_test_"+strings.Repeat("x", 32)) + "\n")
	if reasonOf(t, keystore.Service{}, found) != "" {
		t.Errorf("the pattern found %q in a text, want the token", found)
	}
}
