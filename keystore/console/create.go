package console

import (
	"errors"
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
	f := readCreateForm(x.r.PostForm)
	g, problems := f.grant(x.actor)
	f.Token = x.formToken()
	if f.Token == "" {
		f.Token = newToken()
		return x.reject(f, &keystore.GrantError{Problems: []keystore.Problem{{Field: "token", Message: "The form arrived incomplete. Nothing was created; send it again."}}})
	}
	g.Token = f.Token
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
	}
	token, err := x.idempotencyKey()
	if err != nil {
		return err
	}
	if err := x.readJSON(&body); err != nil {
		return err
	}
	g := keystore.Grant{Organization: x.actor.Organization, Actor: x.actor.ID, Name: strings.TrimSpace(body.Name), Environment: body.Environment, Scopes: body.Scopes, Token: token}
	if body.ExpiresAt != nil {
		g.ExpiresAt = *body.ExpiresAt
	}
	secret, k, err := x.issue(g, nil)
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
	same := func(a, b []scope.Name) bool {
		return !slices.ContainsFunc(a, func(n scope.Name) bool { return !slices.Contains(b, n) })
	}
	return k.RotatedFrom == "" && k.Name == g.Name && k.Environment == g.Environment && same(k.Scopes, g.Scopes) && same(g.Scopes, k.Scopes) &&
		k.ExpiresAt.Equal(g.ExpiresAt.Truncate(time.Microsecond))
}

func tokenReused() error {
	return &failure{status: http.StatusUnprocessableEntity, code: "idempotency_key_reused", title: "Sent before", detail: "This form, or this Idempotency-Key, has been used for something else. Nothing was changed."}
}

// issue makes the key of a grant, in which problems are known already. A repeat
// returns the key that it made the first time with [keystore.ErrExists], before
// anything is judged: the key itself can be what reaches a quota.
func (x *exchange) issue(g keystore.Grant, problems []keystore.Problem) (keystore.Secret, *keystore.Key, error) {
	ctx := x.r.Context()
	if g.Token != "" {
		k, err := x.issuer.Issued(ctx, g.Organization, g.Actor, g.Token)
		if err == nil {
			return keystore.Secret{}, k, keystore.ErrExists
		}
		if !errors.Is(err, keystore.ErrNotFound) {
			return keystore.Secret{}, nil, err
		}
	}
	if g.Name == "" {
		problems = append(problems, keystore.Problem{Field: "name", Message: "Give the key a name, so that others know what it is for."})
	}
	if len(g.Scopes) == 0 {
		problems = append(problems, keystore.Problem{Field: "scopes", Message: "Pick at least one scope: a key without any can do nothing."})
	}
	if invalid, ok := errors.AsType[*keystore.GrantError](x.issuer.Check(g)); ok {
		problems = append(problems, invalid.Problems...)
	}
	problems = append(problems, x.assignProblems(g)...)
	if problems != nil {
		return keystore.Secret{}, nil, &keystore.GrantError{Problems: problems}
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
