package rules

import (
	"strings"
	"testing"
)

// Every spelling of a path is a path, and another one, with a base of any
// number of segments.
func TestSpellings(t *testing.T) {
	for _, base := range []string{"", "/v1", "/v2", "/api/v1", "/my/api/v1"} {
		path := base + "/tasks"
		seen := map[string]bool{path: true}
		for _, s := range spellings(base, path+"?limit=1") {
			spelt, ok := strings.CutSuffix(s, "?limit=1")
			if !ok || !strings.HasPrefix(spelt, "/") || seen[spelt] {
				t.Errorf("base %q: got %q, want a path of its own with the query", base, s)
			}
			seen[spelt] = true
		}
	}
}
