package keystore

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxName = 100 // characters
	maxText = 255 // bytes of an identifier that somebody else chose
)

// A Grant is what a key is issued for.
type Grant struct {
	Organization string       // required; at most 255 bytes
	Name         string       // at most 100 characters, without controls, line ends and changes of direction
	Environment  Environment  // required
	Scopes       []scope.Name // each known to the Issuer's registry; repeated ones count once

	// Attributes are at most 16, with names of 1 to 40 bytes of [0-9A-Za-z_.-]
	// and values of at most 200 bytes. One with an empty value is left out.
	Attributes map[string]string

	Networks  []netip.Prefix // at most 20; none: the key may be used from anywhere
	ExpiresAt time.Time      // before the year 10000, to the microsecond; zero: never

	// IssueToken, unless empty, makes Issue repeatable. It is unique within the
	// organization and actor, and has at most 255 bytes.
	IssueToken string
}

// Validate returns a [*GrantError] with all that is wrong with the grant, or
// nil. [Issuer.Issue] returns the same error, and what its [Policy] refuses.
func (g Grant) Validate(r *scope.Registry) error {
	if problems := g.problems(r, instant()); problems != nil {
		return &GrantError{problems}
	}
	return nil
}

func (g Grant) problems(r *scope.Registry, now time.Time) []FieldError {
	problems := g.ownerProblems()
	if problem := nameProblem(g.Name); problem != "" {
		problems = append(problems, FieldError{"name", problem})
	}
	if !g.Environment.Known() {
		message := fmt.Sprintf("The environment must be %q or %q.", Production, Sandbox)
		problems = append(problems, FieldError{"environment", message})
	}
	_, unknown := r.Parse(g.Scopes)
	for _, n := range unknown {
		message := fmt.Sprintf("There is no scope %.64q.", n)
		if meant, ok := r.Suggest(n); ok {
			message = fmt.Sprintf("There is no scope %.64q; did you mean %q?", n, meant)
		}
		problems = append(problems, FieldError{"scopes", message})
	}
	problems = append(problems, attributeProblems(g.Attributes)...)
	problems = append(problems, networkProblems(g.Networks)...)
	if !g.ExpiresAt.IsZero() && !storable(g.ExpiresAt).After(now) {
		problems = append(problems, FieldError{"expires_at", "The expiry must lie in the future."})
	}
	if beyond(g.ExpiresAt) {
		problems = append(problems, FieldError{"expires_at", beyondText})
	}
	return problems
}

// ownerProblems checks the part of a grant that a rotation has too.
func (g Grant) ownerProblems() (problems []FieldError) {
	for _, field := range []struct {
		name, title, text string
		required          bool
	}{
		{"organization", "organization", g.Organization, true},
		{"issue_token", "issue token", g.IssueToken, false},
	} {
		problem := textProblem(field.title, field.text)
		if field.required && field.text == "" {
			problem = "The " + field.title + " is missing."
		}
		if problem != "" {
			problems = append(problems, FieldError{field.name, problem})
		}
	}
	return problems
}

// textProblem returns what is wrong with an identifier that somebody else
// chose, or "".
func textProblem(title, text string) string {
	switch {
	case len(text) > maxText:
		return fmt.Sprintf("The %s is longer than %d bytes.", title, maxText)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return "The " + title + " is not valid UTF-8 text." // Postgres stores neither
	}
	return ""
}

func nameProblem(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "The name is not valid UTF-8 text."
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Sprintf("The name is longer than %d characters.", maxName)
	case strings.ContainsFunc(name, controls):
		return "The name has a control character, such as a line break."
	}
	return ""
}

// controls reports whether a character ends a line or changes the order of the
// text around it.
func controls(r rune) bool {
	const embeddings, isolates = "\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069"
	return unicode.IsControl(r) || strings.ContainsRune("\u2028\u2029"+embeddings+isolates, r)
}

// key returns the record of a token that is granted at now.
func (g Grant) key(d Digest, hint string, now time.Time) *Key {
	return &Key{
		ID:           newID(),
		Digest:       d,
		Organization: g.Organization,
		Environment:  g.Environment,
		Name:         g.Name,
		Hint:         hint,
		Scopes:       once(g.Scopes),
		Attributes:   valued(g.Attributes),
		Networks:     canonicalNetworks(g.Networks),
		CreatedAt:    now,
		ExpiresAt:    storable(g.ExpiresAt),
		IssueToken:   g.IssueToken,
		Version:      1,
	}
}

// hintOf returns the end of a token, by which its owner recognizes it.
func hintOf(token string) string { return token[len(token)-4:] }

func once(names []scope.Name) []scope.Name {
	kept := make([]scope.Name, 0, len(names))
	for _, n := range names {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}

func newID() string { return "key_" + xid.New().String() }

// instant returns the wall clock's time as every store can keep it.
func instant() time.Time { return storable(time.Now()) }

const beyondText = "The expiry must lie before the year 10000."

// beyond reports whether JSON cannot write a time.
func beyond(t time.Time) bool { return t.UTC().Year() > 9999 }

func storable(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
