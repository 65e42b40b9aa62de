package keystore_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func FuzzParse(f *testing.F) {
	live := withChecksum("svc_live_" + strings.Repeat("0", 32))
	for _, token := range []string{live, strings.Replace(live, "live", "test", 1), live[:40], "svc_pub_1", "svc_live_" + strings.Repeat("-", 30), ""} {
		f.Add(token)
	}
	pattern := regexp.MustCompile("^(?:" + keystore.Service{}.Pattern() + ")$")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := keystore.Service{}.Parse(token)
		environment := got.Environment
		if err != nil {
			if len(got.Digests()) > 0 {
				t.Errorf("Parse(%q) returned %v beside %v", token, got, err)
			}
			return
		}
		if !pattern.MatchString(token) {
			t.Errorf("Parse(%q) accepted what Pattern does not match", token)
		}
		if withChecksum(token[:len(token)-6]) != token {
			t.Errorf("Parse(%q) accepted a wrong checksum", token)
		}
		if word := "_" + environment.Word() + "_"; token[3:9] != "_live_" && token[3:9] != "_test_" || token[3:9] != word {
			t.Errorf("Parse(%q) = %q", token, environment)
		}
	})
}

// A token has the present shape or a legacy one, and never both; what is
// refused is refused with a reason.
func FuzzCandidates(f *testing.F) {
	for _, token := range []string{withChecksum("svc_live_" + strings.Repeat("0", 32)), acme("0"), acme("0") + "0", "acme_", "svc_live_x", ""} {
		f.Add(token)
	}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC([]byte("the new pepper"), []byte("the old pepper"))}}
	pattern := regexp.MustCompile("^acme_[0-9a-f]{40}$")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := format.Parse(token)
		_, parseErr := keystore.Service{}.Parse(token)
		var refused keystore.TokenError
		switch {
		case err != nil:
			if !errors.As(err, &refused) || len(c.Digests()) > 0 || parseErr == nil || pattern.MatchString(token) {
				t.Errorf("Candidates(%q) = %+v, %v", token, c, err)
			}
		case c.Legacy() == "":
			if parseErr != nil || len(c.Digests()) != 1 || c.Digests()[0] != keystore.DigestOf(token) {
				t.Errorf("Candidates(%q) = %+v, which Parse refuses: %v", token, c, parseErr)
			}
		default:
			if parseErr == nil || !pattern.MatchString(token) || len(c.Digests()) != 2 || c.Environment != "" {
				t.Errorf("Candidates(%q) = %+v, want what the pattern matches and Parse refuses", token, c)
			}
		}
	})
}
