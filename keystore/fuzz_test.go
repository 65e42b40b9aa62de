package keystore_test

import (
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
	patterns := make(map[bool]*regexp.Regexp)
	for _, unchecked := range []bool{false, true} {
		patterns[unchecked] = regexp.MustCompile("^(?:" + keystore.Format{AcceptUnchecked: unchecked}.Pattern() + ")$")
	}
	f.Fuzz(func(t *testing.T, token string) {
		for unchecked, pattern := range patterns {
			environment, err := keystore.Format{AcceptUnchecked: unchecked}.Parse(token)
			if err != nil {
				if environment != "" {
					t.Errorf("Parse(%q) returned %q beside %v", token, environment, err)
				}
				continue
			}
			if !pattern.MatchString(token) {
				t.Errorf("Parse(%q) accepted what Pattern does not match", token)
			}
			if !unchecked && withChecksum(token[:len(token)-6]) != token {
				t.Errorf("Parse(%q) accepted a wrong checksum", token)
			}
			if word := "_" + environment.Word() + "_"; token[3:9] != "_live_" && token[3:9] != "_test_" || token[3:9] != word {
				t.Errorf("Parse(%q) = %q", token, environment)
			}
		}
	})
}
