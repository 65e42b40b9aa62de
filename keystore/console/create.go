package console

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// create makes a key from the form of createForm. A preset's button, which
// sends the form where there is no script, only fills it in.
func (x *exchange) create() error {
	if err := x.readForm(); err != nil {
		return err
	}
	f, token := x.readCreateForm(x.r.PostForm), x.formToken()
	f.IssueToken = cmp.Or(token, rand.Text())
	of, preset := x.r.PostForm.Get("opened_for"), x.r.PostForm.Get("preset")
	switch {
	case of != "" && of != x.actor.Organization:
		x.wrong("organization", "The form was opened for another organization. Send it again to create the key for %s.",
			x.actor.Organization)
		return x.reject(f, x.invalid())
	case preset != "":
		return x.presetForm(f, preset)
	case token == "":
		x.wrong("issue_token", "The form arrived incomplete. Nothing was created; send it again.")
		return x.reject(f, x.invalid())
	}
	secret, k, err := x.issue(f)
	switch {
	case errors.Is(err, issuing.ErrExists) && k != nil:
		return x.showReplay(k)
	case err != nil:
		return x.reject(f, err)
	}
	return x.showSecret(secret, k, nil)
}

// issue makes the key of a form. A repeat returns the key of the first time and
// [issuing.ErrExists].
func (x *exchange) issue(f createForm) (keystore.Secret, *keystore.Key, error) {
	g := keystore.Key{Organization: x.actor.Organization, Name: f.Name, Environment: f.Environment, Scopes: f.Scopes,
		ExpiresAt: x.expiresAt(f.Expiry, f.ExpiresOn), Attributes: f.Attributes, Networks: x.parseNetworks(f.Networks),
		IssueToken: f.IssueToken}
	if g.Name == "" {
		x.wrong("name", "Give the key a name, so that others know what it is for.")
	}
	x.checkAttributes(&keystore.Key{}, g.Attributes)
	if len(g.Scopes) == 0 {
		x.wrong("scopes", "Pick at least one scope: a key without any can do nothing.")
	}
	x.checkAssigned(g)
	if x.problems == nil {
		return x.by.Issue(x.r.Context(), g)
	}
	if invalid, ok := errors.AsType[*keystore.FieldsError](g.Validate(x.registry)); ok {
		x.problems = append(x.problems, invalid.Fields...)
	}
	return keystore.Secret{}, nil, x.invalid()
}

// An oldKey is what a rotation did to the key it replaced.
type oldKey struct {
	ID   string
	Ends time.Time // zero: it could not be revoked
	Now  bool      // it ended at once
}

// showSecret answers the POST that made k. It is the only place where a secret
// is revealed.
func (x *exchange) showSecret(secret keystore.Secret, k *keystore.Key, old *oldKey) error {
	use, _ := x.issuer.Usage(x.r.Context(), k.Organization, k.ID) // nil: it cannot be told
	return x.render(http.StatusCreated, "secret.html", "Copy the secret now", struct {
		view
		Secret, Variable string
		Requests         []request
		Use              *issuing.Usage
		Old              *oldKey
	}{x.view(k), secret.Reveal(), x.variable(), x.requests(k), use, old})
}

// used says whether k has been used. The script of the page with its secret
// asks it for that.
func (x *exchange) used(k *keystore.Key) error {
	use, err := x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
	if err != nil {
		return err
	}
	return x.render(http.StatusOK, "used.html", "First use", struct {
		view
		Use *issuing.Usage
	}{x.view(k), use})
}

// showReplay answers a repeat of the POST that made k.
func (x *exchange) showReplay(k *keystore.Key) error {
	return x.render(http.StatusOK, "replay.html", "The secret has been shown", struct {
		view
		Rotatable bool
	}{x.view(k), x.offersRotation(k)})
}
