package rules

import (
	"slices"
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

func TestSpellingsAre(t *testing.T) {
	got := spellings("/api/v1", "/api/v1/tasks?a=b")
	want := []string{
		"/api/v1/tasks.json?a=b", "/api/v1/tasks/contract.css?a=b", "/api/v1/tasks.css?a=b", "/api/v1/tasks%0A?a=b",
		"/api/v1/tasks%ff?a=b", "/api/v1/%2574asks?a=b", "/api/v1/tasks/?a=b", "//api/v1/tasks?a=b", "/api/v1/tasks//?a=b",
		"/api/v1/tasks%2F?a=b", "/api/v1/./tasks?a=b", "/api/v1/x/../tasks?a=b", "/api/v1/tasks/.?a=b",
		"/api/v1/tasks;x?a=b", "/api/v1/tasks%20?a=b",
		"/API/V1/TASKS?a=b", "/api/v1/Tasks?a=b", "/api/v1/%74asks?a=b", "/api/v2/tasks?a=b", "/api/v1//tasks?a=b",
		"/api/v1%2Ftasks?a=b", "/api/v1%5Ctasks?a=b", "/api%2Fv1/tasks?a=b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := spellings("/v2", "/v2/tasks"); !slices.Contains(got, "/v3/tasks") || slices.Contains(got, "/%2Fv2/tasks") {
		t.Errorf("got %q", got)
	}
}

func TestUnknown(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/account":     "/api/v1/contract-unknown?",
		"/api/v1/tasks/7?a=b": "/api/v1/contract-unknown/7?a=b",
		"/1/2?a=b":            "/1/2contract-unknown",
	} {
		if got := unknown(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestDisjoint(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`{"a": 1}`, `{"b": 1}`, true}, {`{"a": 1, "b": 2}`, `{"b": 1}`, false}, {`{}`, `{"b": 1}`, false},
		{`{"a": 1}`, `[]`, false}, {`{"a": 1}`, `{"a": {"b": 1}}`, false}, {`{"a": 1}`, `{`, false},
	} {
		if got := disjoint(members(test.a), members(test.b)); got != test.want {
			t.Errorf("%s and %s: got %t", test.a, test.b, got)
		}
	}
	if separator("/a") != "?" || separator("/a?b") != "&" {
		t.Errorf("got %q and %q", separator("/a"), separator("/a?b"))
	}
}
