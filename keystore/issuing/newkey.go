package issuing

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// fieldProblems returns what is wrong with the fields of a key.
func fieldProblems(k *keystore.Key, r *scope.Registry) []keystore.FieldError {
	if wrong, ok := errors.AsType[*keystore.FieldsError](k.Validate(r)); ok {
		return wrong.Fields
	}
	return nil
}

// ownerProblems checks the part of a key that a rotation has too.
func ownerProblems(organization, issueToken string) []keystore.FieldError {
	return wrong(problem("organization", field.Organization(organization)),
		problem("issue_token", field.Text("issue token", issueToken)))
}

func problem(field, message string) keystore.FieldError {
	return keystore.FieldError{Field: field, Message: message}
}

// invalid is the error of problems.
func invalid(problems ...keystore.FieldError) error { return &keystore.FieldsError{Fields: problems} }

// invalidKey is the error of problems with a new key. Its text, which is for who
// calls from Go and in no form, also says what an Issuer may lack.
func (i *Issuer) invalidKey(k *keystore.Key, problems []keystore.FieldError) error {
	r, err := i.options.Service.Scopes, invalid(problems...)
	if _, unknown := r.Parse(k.Scopes); len(unknown) > 0 && r == scope.Default() {
		err = fmt.Errorf("%w; the Issuer has the scopes of scope.Default: "+
			"give its Options the Service of your middleware.Options", err)
	}
	return err
}

// wrong returns those that have a message.
func wrong(fields ...keystore.FieldError) (problems []keystore.FieldError) {
	for _, f := range fields {
		if f.Message != "" {
			problems = append(problems, f)
		}
	}
	return problems
}

// newKey returns the record of a token at now, with those fields of k that its
// owner chooses.
func newKey(k *keystore.Key, d keystore.Digest, hint string, now time.Time) *keystore.Key {
	return &keystore.Key{
		ID: newID(), Digest: d, Hint: hint, CreatedAt: now, Version: 1,
		Organization: k.Organization,
		Environment:  k.Environment,
		Name:         k.Name,
		Scopes:       once(k.Scopes),
		Attributes:   field.Attributes(k.Attributes),
		Networks:     field.Networks(k.Networks),
		ExpiresAt:    field.Time(k.ExpiresAt),
		IssueToken:   k.IssueToken,
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
