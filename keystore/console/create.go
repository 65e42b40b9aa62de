package console

import (
	"crypto/rand"
	"errors"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// create makes a key from the form of createForm. A preset's button, which
// sends the form where there is no script, only fills it in.
func (x *exchange) create() error {
	if err := x.readForm(); err != nil {
		return err
	}
	f := x.readCreateForm(x.r.PostForm)
	if of := x.r.PostForm.Get("opened_for"); of != "" && of != x.actor.Organization {
		f.IssueToken = rand.Text()
		return x.reject(f, &keystore.FieldsError{Fields: []keystore.FieldError{{Field: "organization",
			Message: "The form was opened for another organization. Send it again to create the key for " +
				x.actor.Organization + "."}}})
	}
	if preset := x.r.PostForm.Get("preset"); preset != "" {
		return x.presetForm(f, preset)
	}
	g, problems := f.grant(x.actor)
	networks, networkProblems := x.parseNetworks(f.Networks)
	g.Attributes, g.Networks, problems = f.Attributes, networks, append(problems, networkProblems...)
	f.IssueToken = x.formToken()
	if f.IssueToken == "" {
		f.IssueToken = rand.Text()
		return x.reject(f, &keystore.FieldsError{Fields: []keystore.FieldError{{Field: "issue_token",
			Message: "The form arrived incomplete. Nothing was created; send it again."}}})
	}
	g.IssueToken = f.IssueToken
	secret, k, err := x.issue(g, problems)
	switch {
	case errors.Is(err, issuing.ErrExists) && k != nil:
		x.showReplay(k)
		return nil
	case err != nil:
		return x.reject(f, err)
	}
	x.showSecret(secret, k, nil)
	return nil
}

// issue makes the key of a grant; problems are those found before. A repeat
// returns the key of the first time and [issuing.ErrExists].
func (x *exchange) issue(g keystore.Key, problems []keystore.FieldError) (keystore.Secret, *keystore.Key, error) {
	if g.Name == "" {
		problems = append(problems, keystore.FieldError{Field: "name",
			Message: "Give the key a name, so that others know what it is for."})
	}
	problems = append(problems, x.attributeProblems(&keystore.Key{}, g.Attributes)...)
	if len(g.Scopes) == 0 {
		problems = append(problems, keystore.FieldError{Field: "scopes",
			Message: "Pick at least one scope: a key without any can do nothing."})
	}
	problems = append(problems, x.assignProblems(g)...)
	if problems == nil {
		return x.by.Issue(x.r.Context(), g)
	}
	if invalid, ok := errors.AsType[*keystore.FieldsError](g.Validate(x.registry)); ok {
		problems = append(problems, invalid.Fields...)
	}
	return keystore.Secret{}, nil, &keystore.FieldsError{Fields: problems}
}
