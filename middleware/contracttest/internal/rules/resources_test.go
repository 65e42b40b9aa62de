package rules

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The texts of an account are words, and no times.
func TestLeaves(t *testing.T) {
	got := leaves(`{"a": "org one", "b": ["two", {"c": "three"}], "d": "2030-01-02T03:04", "e": "x", "f": 7, "g": "12"}`)
	if want := []string{"org one", "three", "two"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("got %v, want %q", got, want)
	}
	if got := leaves("one"); got == nil || len(got) > 0 {
		t.Errorf("of no JSON: got %v", got)
	}
}

func TestFillKey(t *testing.T) {
	const u = "01234567-89ab-cdef-0123-456789abcdef"
	const bare = "0123456789abcdef0123456789abcdef"
	for template, want := range map[string]string{
		"{u},a": u + ",a", "{U}": strings.ToUpper(u), "{x}": bare, "007{n}": "007012345678912345", "{3}b": "012b",
		"{254}a": strings.Repeat(bare, 8)[:254] + "a",
	} {
		if got := fillKey(template, u); got != want {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}

// What tells two accounts apart is theirs alone, and stays.
func TestAccounts(t *testing.T) {
	names := map[string]string{"Bearer one": "org one", "Bearer two": "org two"}
	changes := false // by itself
	served(t, func(w http.ResponseWriter, r *http.Request) {
		name := names[r.Header.Get("Authorization")]
		if changes {
			name = "org two"
		}
		_, _ = fmt.Fprintf(w, `{"organization": [%q, "eu"], "trace": %q}`, name, rand.Text())
	}, func(p *probe) {
		got := p.accounts("one", "two")
		if !got.key["org one"] || !got.other["org two"] || len(got.key) != 1 || len(got.other) != 1 {
			t.Errorf("got %v", got)
		}
		wantEnd(t, "of one organization", LeftOut, func() { p.accounts("one", "one") })
		own, foreign := p.fresh("one", "x"), p.fresh("two", "x")
		wantEnd(t, "its own", Held, func() { p.wantOwn("a GET", own, "one", got.other) })
		wantEnd(t, "another one's", Broken, func() { p.wantOwn("a GET", foreign, "one", got.other) })
		changes = true
		wantEnd(t, "one that changes", LeftOut, func() { p.wantOwn("a GET", foreign, "one", got.other) })
		foreign.status = 403
		wantEnd(t, "a refusal", Held, func() { p.wantOwn("a GET", foreign, "one", got.other) })
	})
}
