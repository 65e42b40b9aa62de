package issuing

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// problems collects what is wrong.
type problems []keystore.FieldError

func (p *problems) add(name, format string, args ...any) {
	*p = append(*p, keystore.FieldError{Field: name, Message: fmt.Sprintf(format, args...)})
}

// addText adds a message, unless it is empty.
func (p *problems) addText(name, message string) {
	if message != "" {
		p.add(name, "%s", message)
	}
}

// addFields adds what is wrong with the fields of a key.
func (p *problems) addFields(k *keystore.Key, r *scope.Registry) {
	if wrong, ok := errors.AsType[*keystore.FieldsError](k.Validate(r)); ok {
		*p = append(*p, wrong.Fields...)
	}
}

// addLimits adds what the limits have against a new key, but for MaxKeys.
func (p *problems) addLimits(o *Options, k *keystore.Key, now time.Time) {
	if o.MaxLife > 0 && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(now.Add(o.MaxLife))) {
		p.add("expires_at", "The key must expire within %s.", lifeText(o.MaxLife))
	}
}

func lifeText(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}

// addOwner checks the part of a key that a rotation has too.
func (p *problems) addOwner(organization, issueToken string) {
	p.addText("organization", field.Organization(organization))
	p.addText("issue_token", field.Text("issue token", issueToken))
}

// err is the error of the problems, nil if there are none.
func (p problems) err() error {
	if p == nil {
		return nil
	}
	return &keystore.FieldsError{Fields: p}
}

// invalid is the error of one problem.
func invalid(name, format string, args ...any) error {
	var p problems
	p.add(name, format, args...)
	return p.err()
}

// actProblems returns what is wrong with who acts, and why.
func (i *Issuer) actProblems() (p problems) {
	p.addText("actor", cmp.Or(field.Text("actor", i.actor), field.Name("actor", i.actor)))
	p.addText("reason", field.Text("reason", i.reason))
	return p
}

// ofKey is the error of problems with a new key. Its text, which is for who calls
// from Go and in no form, also says what an Issuer may lack.
func (p problems) ofKey(k *keystore.Key, r *scope.Registry) error {
	if _, unknown := r.Parse(k.Scopes); len(unknown) > 0 && r == scope.Default() {
		return fmt.Errorf("%w; the Issuer has the scopes of scope.Default: "+
			"give its Options the Service of your middleware.Options", p.err())
	}
	return p.err()
}
