package issuing

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// maxHint is how many bytes of a secret a record may show: half of the shortest
// legacy token.
const maxHint = 8

// Import stores a key that an older system issued. Of old it takes what
// [Issuer.Issue] does, and CreatedBy, ID, Hint, CreatedAt and LastUsedAt as far as
// they are known; the actor is that of the audit alone.
//
// token is the text of the key. [keystore.Service.Parse] decides whether it is
// acceptable, and its error is returned unchanged; the Environment must be the
// one that the token names, if any. A legacy token is stored under the first of
// its digests.
//
// If only the hash is known, token is empty. old.Digest is then the only one under
// which the older system kept the token, one of [keystore.LegacyFormat.Digests],
// and old.Legacy is the Name of the format.
//
// The digest does not protect a token that can be guessed: import only random
// ones. A key that was revoked, is suspended or has expired is refused. A legacy
// key is marked until it is rotated.
//
// Import returns [ErrExists] when there is such a key already, under whichever
// digest, and the key too when it belongs to the organization: a program that
// imports many can be run again. For an ID or IssueToken that another key has,
// or the ID of a key that was swept before its children, the error is a
// [*keystore.FieldsError].
func (i *Issuer) Import(ctx context.Context, old keystore.Key, token string) (*keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return nil, err
	}
	t, digests, hint := keystore.Token{Legacy: old.Legacy}, []keystore.Digest{old.Digest}, old.Hint
	if token != "" {
		var err error
		if t, err = i.options.Service.Parse(token); err != nil {
			return nil, err
		}
		digests, hint = i.digests(t.Legacy, token), hintOf(token)
		if t.Child {
			return nil, invalid("parent", "The token is that of a child, which cannot be imported.")
		}
	}
	p := i.actProblems()
	p.addFields(&old, i.options.Service.Scopes)
	p.addImport(&i.options, &old, t, digests[0])
	if p != nil {
		return nil, p.ofKey(&old, i.options.Service.Scopes)
	}
	k := newKey(&old, digests[0], hint, field.Now())
	k.ID, k.Legacy, k.CreatedBy = cmp.Or(old.ID, k.ID), t.Legacy, old.CreatedBy
	k.LastUsedAt, k.CreatedAt = field.Time(old.LastUsedAt), cmp.Or(field.Time(old.CreatedAt), k.CreatedAt)
	// A second record would outlive the revocation of the first one.
	for _, d := range digests[1:] {
		switch existing, err := i.existing(ctx, d, old.Organization); {
		case err == nil:
			return existing, ErrExists
		case !errors.Is(err, keystore.ErrNotFound):
			return nil, err
		}
	}
	return i.insertImported(ctx, k)
}

// digests returns those of a token of the format, the one for a new record first.
func (i *Issuer) digests(legacy, token string) []keystore.Digest {
	for _, l := range i.options.Service.Legacy {
		if l.Name == legacy && l.Digests != nil {
			return l.Digests(token)
		}
	}
	return []keystore.Digest{keystore.DigestOf(token)}
}

// addImport adds what else is wrong with a record and its token.
func (p *problems) addImport(o *Options, old *keystore.Key, t keystore.Token, d keystore.Digest) {
	if t.Environment != "" && old.Environment.Known() && t.Environment != old.Environment {
		p.add("environment", "The token is a %s key.", t.Environment)
	}
	if t.Environment == "" && d == (keystore.Digest{}) {
		p.add("digest", "The digest is missing.")
	}
	named := func(l keystore.LegacyFormat) bool { return l.Name == t.Legacy }
	if t.Environment == "" && !slices.ContainsFunc(o.Service.Legacy, named) {
		p.add("legacy", "There is no legacy format %.64q.", t.Legacy)
	}
	if !old.RevokedAt.IsZero() || old.Suspended {
		p.add("revoked_at", "The key is revoked or suspended; imported it would be live.")
	}
	p.addParent(old)
	p.addText("id", field.Text("ID", old.ID))
	p.addText("created_by", cmp.Or(field.Text("creator", old.CreatedBy), field.Name("creator", old.CreatedBy)))
	if len(old.Hint) > maxHint || field.Text("hint", old.Hint) != "" {
		p.add("hint", "The hint is longer than %d bytes, or not valid UTF-8 text.", maxHint)
	}
}

// insertImported stores k, or returns the existing key with [ErrExists]. If only
// the ID or the IssueToken is taken, the error is another one: the caller of an
// import takes ErrExists for success.
func (i *Issuer) insertImported(ctx context.Context, k *keystore.Key) (*keystore.Key, error) {
	// The children of a key with this ID that was swept would be usable again.
	below, err := i.store.List(ctx, k.Organization, Query{Parent: k.ID, Limit: 1})
	if err != nil {
		return nil, err
	}
	var stored *keystore.Key
	if err = ErrExists; len(below.Keys) == 0 {
		stored, err = i.insert(ctx, "import", k, 0)
	}
	if !errors.Is(err, ErrExists) {
		return stored, err
	}
	existing, lookupErr := i.existing(ctx, k.Digest, k.Organization)
	switch {
	case lookupErr == nil:
		return existing, err
	case !errors.Is(lookupErr, keystore.ErrNotFound):
		return nil, lookupErr
	case stored != nil:
		return nil, invalid("issue_token", "The issue token made another key.")
	}
	return nil, invalid("id", "Another key has this ID, or had it.")
}

// existing returns a copy of the key of the digest, or nil and no error if that
// belongs to another organization. What an erasure has left is no key.
func (i *Issuer) existing(ctx context.Context, d keystore.Digest, organization string) (*keystore.Key, error) {
	k, err := i.store.Lookup(ctx, d)
	switch {
	case err != nil || k == nil:
		return nil, err
	case k.Organization == "" && !k.RevokedAt.IsZero():
		return nil, keystore.ErrNotFound
	case k.Organization != organization:
		return nil, nil
	}
	return k.Clone(), nil
}
