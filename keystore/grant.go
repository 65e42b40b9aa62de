package keystore

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxName = 100 // characters
	maxText = 255 // bytes of an identifier that somebody else chose
)

// A Grant is what a key is issued for.
type Grant struct {
	Organization string       // required; at most 255 bytes
	Actor        string       // who issues it, kept as CreatedBy; at most 255 bytes
	Name         string       // at most 100 characters, none of them control characters
	Environment  Environment  // required
	Scopes       []scope.Name // each known to the Issuer's registry; repeated ones count once
	ExpiresAt    time.Time    // zero: never; kept to the microsecond
	Token        string       // makes Issue repeatable; unique within (Organization, Actor) unless empty; at most 255 bytes
}

// A Problem is one thing that is wrong with a [Grant].
type Problem struct {
	Field   string // "organization", "actor", "name", "environment", "scopes", "expires_at", "token" or "overlap"
	Message string // a sentence for whoever filled the field in; may quote what they wrote
}

// A GrantError holds all that is wrong with a [Grant], so that a form can show
// it in one go. A field can have several problems.
type GrantError struct {
	Problems []Problem
}

func (e *GrantError) Error() string {
	var b strings.Builder
	b.WriteString("keystore: grant is not valid")
	for _, p := range e.Problems {
		b.WriteString("; " + p.Field + ": " + p.Message)
	}
	return b.String()
}

func (g Grant) check(r *scope.Registry, now time.Time) error {
	if problems := g.problems(r, now); problems != nil {
		return &GrantError{problems}
	}
	return nil
}

func (g Grant) problems(r *scope.Registry, now time.Time) []Problem {
	problems := g.ownerProblems()
	if problem := nameProblem(g.Name); problem != "" {
		problems = append(problems, Problem{"name", problem})
	}
	if !g.Environment.Known() {
		problems = append(problems, Problem{"environment", fmt.Sprintf("The environment must be %q or %q.", Production, Sandbox)})
	}
	_, unknown := r.Parse(g.Scopes)
	for _, n := range unknown {
		message := fmt.Sprintf("There is no scope %.64q.", n)
		if meant, ok := r.Suggest(n); ok {
			message = fmt.Sprintf("There is no scope %.64q; did you mean %q?", n, meant)
		}
		problems = append(problems, Problem{"scopes", message})
	}
	if !g.ExpiresAt.IsZero() && !storable(g.ExpiresAt).After(now) {
		problems = append(problems, Problem{"expires_at", "The expiry must lie in the future."})
	}
	return problems
}

// ownerProblems checks the part of a grant that a rotation has too.
func (g Grant) ownerProblems() (problems []Problem) {
	for _, field := range []struct {
		name, text string
		required   bool
	}{
		{"organization", g.Organization, true},
		{"actor", g.Actor, false},
		{"token", g.Token, false},
	} {
		switch {
		case field.required && field.text == "":
			problems = append(problems, Problem{field.name, "The " + field.name + " is missing."})
		case len(field.text) > maxText:
			problems = append(problems, Problem{field.name, fmt.Sprintf("The %s is longer than %d bytes.", field.name, maxText)})
		case !utf8.ValidString(field.text) || strings.ContainsRune(field.text, 0):
			// Postgres stores neither.
			problems = append(problems, Problem{field.name, "The " + field.name + " is not valid UTF-8 text."})
		}
	}
	return problems
}

func nameProblem(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "The name is not valid UTF-8 text."
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Sprintf("The name is longer than %d characters.", maxName)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "The name has a control character, such as a line break."
	}
	return ""
}

// key returns the record of a token that is granted at now.
func (g Grant) key(token string, now time.Time) *Key {
	return &Key{
		ID:           newID(),
		Digest:       DigestOf(token),
		Organization: g.Organization,
		Environment:  g.Environment,
		Name:         g.Name,
		Hint:         hint(token),
		Scopes:       once(g.Scopes),
		CreatedAt:    now,
		CreatedBy:    g.Actor,
		ExpiresAt:    storable(g.ExpiresAt),
		IssueToken:   g.Token,
		Version:      1,
	}
}

// hint returns the end of a token, by which its owner recognizes it.
func hint(token string) string { return token[len(token)-4:] }

func once(names []scope.Name) []scope.Name {
	kept := make([]scope.Name, 0, len(names))
	for _, n := range names {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}
