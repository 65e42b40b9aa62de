package issuing

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// A Grant is what a key is issued for, within the limits of
// [keystore.Key.Validate].
type Grant struct {
	Organization string               // required
	Name         string               // what its owner calls the key
	Environment  keystore.Environment // required
	Scopes       []scope.Name         // each known to the Issuer's registry; repeated ones count once
	Attributes   map[string]string
	Networks     []netip.Prefix // none: the key may be used from anywhere
	ExpiresAt    time.Time      // to the microsecond; zero: never

	// IssueToken, unless empty, makes Issue repeatable. It is unique within the
	// organization and actor.
	IssueToken string
}

// fieldProblems returns what is wrong with the fields of a key.
func fieldProblems(k *keystore.Key, r *scope.Registry) []keystore.FieldError {
	if wrong, ok := errors.AsType[*keystore.FieldsError](k.Validate(r)); ok {
		return wrong.Fields
	}
	return nil
}

// ownerProblems checks the part of a grant that a rotation has too.
func ownerProblems(organization, issueToken string) []keystore.FieldError {
	return wrong(problem("organization", field.Organization(organization)),
		problem("issue_token", field.Text("issue token", issueToken)))
}

func problem(field, message string) keystore.FieldError {
	return keystore.FieldError{Field: field, Message: message}
}

// invalid is the error of problems.
func invalid(problems ...keystore.FieldError) error { return &keystore.FieldsError{Fields: problems} }

// wrong returns those that have a message.
func wrong(fields ...keystore.FieldError) (problems []keystore.FieldError) {
	for _, f := range fields {
		if f.Message != "" {
			problems = append(problems, f)
		}
	}
	return problems
}

// fields returns a key with the fields of the grant as they were given.
func (g Grant) fields() *keystore.Key {
	return &keystore.Key{
		Organization: g.Organization,
		Environment:  g.Environment,
		Name:         g.Name,
		Scopes:       g.Scopes,
		Attributes:   g.Attributes,
		Networks:     g.Networks,
		ExpiresAt:    g.ExpiresAt,
		IssueToken:   g.IssueToken,
	}
}

// key returns the record of a token that is granted at now.
func (g Grant) key(d keystore.Digest, hint string, now time.Time) *keystore.Key {
	k := g.fields()
	k.ID, k.Digest, k.Hint, k.CreatedAt, k.Version = newID(), d, hint, now, 1
	k.Scopes = once(g.Scopes)
	k.Attributes = field.Attributes(g.Attributes)
	k.Networks = field.Networks(g.Networks)
	k.ExpiresAt = field.Time(g.ExpiresAt)
	return k
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
