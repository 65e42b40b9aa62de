package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every digit of a new UUID is random, but for its version and variant.
func TestNewUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[int]map[byte]bool)
	for range 1000 {
		u := newUUID()
		if !form.MatchString(u) {
			t.Fatalf("got %q", u)
		}
		for i := range len(u) {
			if seen[i] == nil {
				seen[i] = make(map[byte]bool)
			}
			seen[i][u[i]] = true
		}
	}
	few := map[int]int{8: 1, 13: 1, 14: 1, 18: 1, 19: 4, 23: 1}
	for i, digits := range seen {
		if len(digits) != cmp.Or(few[i], 16) {
			t.Errorf("byte %d has %d values", i, len(digits))
		}
	}
}

func TestFill(t *testing.T) {
	for template, field := range map[string]int{
		"{{number}} {{uuid}} {{random}}": 0, "{{number}} {{uuid}}": 1, "{{number}}": -1,
	} {
		body, marker, values := fill(template)
		want := ""
		if field >= 0 {
			want = values[field]
		}
		if marker != want {
			t.Errorf("%s: got the marker %q of %q", template, marker, values)
		}
		slices.Reverse(values)
		if words := strings.Fields(body); !slices.Equal(words, values[:len(words)]) {
			t.Errorf("%s: got %q of %q", template, body, values)
		}
	}
	form := regexp.MustCompile(`^ck[a-z2-7]{18} [0-9]{1,12}$`)
	numbers := make(map[string]bool)
	for range 900 {
		body, _, _ := fill("{{random}} {{number}}")
		_, number, _ := strings.Cut(body, " ")
		if !form.MatchString(body) || numbers[number] {
			t.Fatalf("got %q", body)
		}
		numbers[number] = true
	}
}

// Whose list shows a resource, and who may create at all.
func TestCreator(t *testing.T) {
	s := &Session{target: Target{Keys: make(map[string]string)}}
	for _, name := range KeyNames() {
		s.target.Keys[name] = name
	}
	s.have = KeyNames()
	for key, want := range map[string]struct {
		lister string
		may    bool
	}{
		"": {"full", false}, "full": {"full", true}, "second": {"full", true}, "writer": {"full", true},
		"none": {"full", false}, "reader": {"full", false}, "revoked": {"full", false}, "unknown": {"full", false},
		"other": {"other", true}, "sandbox": {"sandbox", true}, "sandbox-none": {"sandbox", false},
	} {
		if lister, may := s.creator(key); lister != want.lister || may != want.may {
			t.Errorf("%q: got %q, %t", key, lister, may)
		}
	}
	s.have, s.target.Keys = nil, map[string]string{"full": "full", "sandbox-none": "sandbox-none"}
	for _, key := range []string{"", "sandbox-none"} {
		if lister, may := s.creator(key); lister != "full" || may {
			t.Errorf("without other keys, %q: got %q, %t", key, lister, may)
		}
	}
}

// Headers are found and replaced in any letter case.
func TestLines(t *testing.T) {
	c := creation{request: request{lines: []string{"authorization: Bearer one", "IDEMPOTENCY-KEY: two", "Accept: three"}}}
	other := c.as("four").keyedWith("five")
	want := []string{"Authorization: Bearer four", "Accept: three", "Idempotency-Key: five"}
	if !slices.Equal(other.lines, want) {
		t.Errorf("got %q, want %q", other.lines, want)
	}
	if got := c.as("").lines; !slices.Equal(got, c.lines[1:]) {
		t.Errorf("without a key: got %q", got)
	}
	if c.key() != "two" || other.key() != "five" || other.header("none") != "" {
		t.Errorf("got the keys %q and %q", c.key(), other.key())
	}
}

// Another body is another one, also where the body has no template.
func TestAnotherBody(t *testing.T) {
	p := &probe{Session: &Session{}}
	for _, body := range []string{"fixed", "", "a {{random}}"} {
		p.target.Creates = []Create{{Path: "/", Body: body}}
		c := p.create(0, "")
		if other := p.another(c); other.body == c.body || other.key() != c.key() {
			t.Errorf("%q: got %q with the key %s", body, other.body, other.key())
		}
	}
}
