package rules

import (
	"maps"
	"strings"
	"testing"
)

func TestAltered(t *testing.T) {
	const prefix, random = "svc_live_", "aZ09bcdefgH1"
	got := altered(prefix + random)
	another := got["another random part"]
	if len(another) != len(prefix+random) || !strings.HasPrefix(another, prefix) || another == prefix+random {
		t.Errorf("another random part: got %q", another)
	}
	if half := got["its second half another"]; len(half) != len(another) || !strings.HasPrefix(half, prefix+random[:6]) {
		t.Errorf("its second half another: got %q", half)
	}
	delete(got, "another random part")
	delete(got, "its second half another")
	want := map[string]string{
		"another last byte":            prefix + "aZ09bcdefgHa",
		"another first byte":           prefix + "bZ09bcdefgH1",
		"another byte in the middle":   prefix + "aZ09bcaefgH1",
		"its last byte missing":        prefix + "aZ09bcdefgH",
		"its last two bytes missing":   prefix + "aZ09bcdefg",
		"its second half missing":      prefix + "aZ09bc",
		"a byte too many":              prefix + "aZ09bcdefgH10",
		"a second key behind it":       prefix + random + prefix + random,
		"its random part twice":        prefix + random + random,
		"capitals":                     "SVC_LIVE_AZ09BCDEFGH1",
		"small letters":                prefix + "az09bcdefgh1",
		"a random part in capitals":    prefix + "AZ09BCDEFGH1",
		"another environment":          "svc_test_" + random,
		"another prefix":               "xsvc_live_" + random,
		"its prefix missing":           random,
		"the letter case of one other": prefix + "aZ09bcdefgh1",
		"two bytes exchanged":          prefix + "Za09bcdefgH1",
		"the same hash in Java":        prefix + "aZ09cDdefgH1",
		"dashes for underscores":       "svc-live-" + random,
		"its hash in its place":        "363734167c1e403c561b183a51bf0ee36c7f1526e4981a2f1c899d5f4a711844",
		"its base64 in its place":      "c3ZjX2xpdmVfYVowOWJjZGVmZ0gx",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := altered("svc_test_" + random)["another environment"]; got != prefix+random {
		t.Errorf("a test key: got %q", got)
	}
	if got := altered(""); len(got) > 0 {
		t.Errorf("no key: got %q", got)
	}
}

// A key without letters, in small letters or without an environment has fewer
// keys close to it.
func TestAlteredLeavesOut(t *testing.T) {
	for key, left := range map[string]string{
		"12345678":          "the letter case of one other",
		"svc_live_a2345678": "small letters",
		"SVC_LIVE_A2345678": "capitals",
		"acme_a2345678":     "another environment",
	} {
		for how, other := range altered(key) {
			if how == left || other == key || other == "" {
				t.Errorf("%s with %s: got %q", key, how, other)
			}
		}
	}
}

func TestFlipCase(t *testing.T) {
	for key, want := range map[string]string{
		"svc_a2345678": "svc_A2345678", "svc_1234567z": "svc_1234567Z",
		"svc_A2345678": "svc_a2345678", "svc_1234567Z": "svc_1234567z",
		"svc_12a4567-": "svc_12A4567-", "svc_12345678": "", "svc_`{@[5678": "",
	} {
		if got := flipCase(key, "svc_"); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

// The checksum of another key is right where that of the key is.
func TestAnother(t *testing.T) {
	for text, want := range map[string]string{"123456789": "3jZRME", "": "000000", "svc_live_00000068": "00I0ff"} {
		if got := sum(text); got != want {
			t.Errorf("the sum of %q: got %s, want %s", text, got, want)
		}
	}
	for key, summed := range map[string]bool{
		"svc_live_aZ09bcdefgH146hXp3": true, "svc_live_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0p107V": true,
		"svc_live_aZ09bcdefgH146hXp4": false, "000000": false,
	} {
		other := another(key)
		begins, ends := other[:len(other)-6], other[len(other)-6:]
		if len(other) != len(key) || other == key || (ends == sum(begins)) != summed {
			t.Errorf("%s: got %s", key, other)
		}
	}
}
