package console

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// create makes a key, from the form of createForm or from JSON.
func (x *exchange) create() error {
	if x.json {
		return x.createFromJSON()
	}
	if err := x.readForm(); err != nil {
		return err
	}
	f := x.readCreateForm(x.r.PostForm)
	g, problems := f.grant(x.actor)
	networks, networkProblems := x.parseNetworks(splitNetworks(f.Networks))
	g.Attributes, g.Networks, problems = f.Attributes, networks, append(problems, networkProblems...)
	f.IssueToken = x.formToken()
	if f.IssueToken == "" {
		f.IssueToken = newToken()
		return x.reject(f, &keystore.GrantError{Fields: []keystore.FieldError{{Field: "issue_token", Message: "The form arrived incomplete. Nothing was created; send it again."}}})
	}
	g.IssueToken = f.IssueToken
	secret, k, err := x.issue(g, problems)
	switch {
	case errors.Is(err, keystore.ErrExists) && k != nil:
		x.showReplay(k)
		return nil
	case err != nil:
		return x.reject(f, err)
	}
	x.showSecret(secret, k, nil)
	return nil
}

func (x *exchange) createFromJSON() error {
	var body struct {
		Name        string               `json:"name"`
		Environment keystore.Environment `json:"environment"`
		Scopes      []scope.Name         `json:"scopes"`
		ExpiresAt   *time.Time           `json:"expires_at"`
		Attributes  map[string]string    `json:"attributes"`
		Networks    []string             `json:"networks"`
	}
	token, err := x.idempotencyKey()
	if err != nil {
		return err
	}
	if err := x.readJSON(&body); err != nil {
		return err
	}
	g := keystore.Grant{Organization: x.actor.Organization, Actor: x.actor.ID, Name: strings.TrimSpace(body.Name), Environment: body.Environment, Scopes: body.Scopes, Attributes: body.Attributes, IssueToken: token}
	var problems []keystore.FieldError
	g.Networks, problems = x.parseNetworks(body.Networks)
	if body.ExpiresAt != nil {
		g.ExpiresAt = *body.ExpiresAt
	}
	secret, k, err := x.issue(g, problems)
	switch {
	case errors.Is(err, keystore.ErrExists) && k != nil:
		if !made(k, g) {
			return tokenReused()
		}
		x.showReplay(k)
		return nil
	case err != nil:
		return err
	}
	x.showSecret(secret, k, nil)
	return nil
}

// made reports whether g is what k was created for.
func made(k *keystore.Key, g keystore.Grant) bool {
	attributes := maps.Clone(g.Attributes)
	maps.DeleteFunc(attributes, func(_, value string) bool { return value == "" })
	return k.RotatedFrom == "" && k.Name == g.Name && k.Environment == g.Environment && sameSet(k.Scopes, g.Scopes) &&
		maps.Equal(k.Attributes, attributes) && sameSet(k.Networks, g.Networks) && k.ExpiresAt.Equal(g.ExpiresAt.Truncate(time.Microsecond))
}

// sameSet reports whether each of a is in b and each of b in a.
func sameSet[E comparable](a, b []E) bool {
	lacks := func(s []E) func(E) bool { return func(e E) bool { return !slices.Contains(s, e) } }
	return !slices.ContainsFunc(a, lacks(b)) && !slices.ContainsFunc(b, lacks(a))
}

func tokenReused() error {
	return &failure{status: http.StatusUnprocessableEntity, code: "idempotency_key_reused", title: "Sent before", detail: "This form, or this Idempotency-Key, has been used for something else. Nothing was changed."}
}

// issue makes the key of a grant; problems are those found before. A repeat
// returns the key of the first time and [keystore.ErrExists], and checks
// nothing: that key itself may have reached a quota.
func (x *exchange) issue(g keystore.Grant, problems []keystore.FieldError) (keystore.Secret, *keystore.Key, error) {
	ctx := x.r.Context()
	if g.IssueToken != "" {
		k, err := x.issuer.Issued(ctx, g.Organization, g.Actor, g.IssueToken)
		if err == nil {
			return keystore.Secret{}, k, keystore.ErrExists
		}
		if !errors.Is(err, keystore.ErrNotFound) {
			return keystore.Secret{}, nil, err
		}
	}
	if g.Name == "" {
		problems = append(problems, keystore.FieldError{Field: "name", Message: "Give the key a name, so that others know what it is for."})
	}
	problems = append(problems, x.attributeProblems(&keystore.Key{}, g.Attributes)...)
	if len(g.Scopes) == 0 {
		problems = append(problems, keystore.FieldError{Field: "scopes", Message: "Pick at least one scope: a key without any can do nothing."})
	}
	if invalid, ok := errors.AsType[*keystore.GrantError](g.Validate(x.registry)); ok {
		problems = append(problems, invalid.Fields...)
	}
	problems = append(problems, x.assignProblems(g)...)
	if problems != nil {
		return keystore.Secret{}, nil, &keystore.GrantError{Fields: problems}
	}
	if x.options.Check != nil {
		if err := x.options.Check(ctx, x.actor, g); err != nil {
			return keystore.Secret{}, nil, err
		}
	}
	secret, k, err := x.issuer.Issue(ctx, g)
	if err == nil {
		x.audit(Event{Act: Created}, k)
	}
	return secret, k, err
}
