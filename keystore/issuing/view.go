package issuing

import (
	"context"
	"errors"
	"fmt"

	"github.com/sallyport-go/sallyport/keystore"
)

// Key returns a key of the organization, or [keystore.ErrNotFound]. The key
// belongs to the caller.
func (i *Issuer) Key(ctx context.Context, organization, id string) (*keystore.Key, error) {
	k, err := i.manager.Find(ctx, organization, id)
	return owned(k, err, organization)
}

// Keys returns one page of the organization's keys, as [Manager.List] does, or
// with [Page.AllOrganizations] of all keys. It sets the Total to -1 where the
// store does not count. The error wraps [errors.ErrUnsupported] when such a
// store is asked for Search, OrStatus, ScopesUnusedSince or AllOrganizations,
// which it may not know either.
//
// All keys that a page selects are read so, some at a time:
//
//	for {
//		keys, err := issuer.Keys(ctx, organization, page)
//		if err != nil || len(keys) == 0 {
//			return err
//		}
//		…
//		page.After = keys[len(keys)-1]
//	}
func (i *Issuer) Keys(ctx context.Context, organization string, p Page) ([]*keystore.Key, error) {
	if p.AllOrganizations && organization != "" {
		return nil, errors.New("issuing: Keys of an organization and of all: name none with Page.AllOrganizations")
	}
	if p.Total == nil && p.After == nil && p.extended() { // once, of a key that is not there: to count reads all
		if _, err := i.Keys(ctx, organization, Page{OrStatus: "none", Parent: "none", Total: new(int)}); err != nil {
			return nil, err
		}
	}
	if p.Total != nil {
		*p.Total = -1
	}
	keys, err := i.manager.List(ctx, organization, p)
	if err == nil && p.extended() && p.Total != nil && *p.Total < 0 {
		err = fmt.Errorf("issuing: List of %T has to set Page.Total when Search, OrStatus or the like is asked for: %w",
			i.manager, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if p.AllOrganizations && k != nil {
			organization = k.Organization
		}
		if _, err := owned(k, nil, organization); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Usage returns what is known of the use of a key, or [keystore.ErrNotFound].
// The error wraps [errors.ErrUnsupported] when the store is no [UsageReader].
func (i *Issuer) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	r, ok := i.manager.(UsageReader)
	if !ok {
		return nil, fmt.Errorf("issuing: %T does not keep how keys are used: %w", i.manager, errors.ErrUnsupported)
	}
	return r.Usage(ctx, organization, id)
}

// KeyOf returns the key of a token that somebody has found, whatever the status
// of the key. It returns a [keystore.TokenError] for a text that cannot be a
// key, and [keystore.ErrNotFound] for one that no organization has. After any
// other error it is not known whose the token is. The key belongs to the
// caller.
func (i *Issuer) KeyOf(ctx context.Context, token string) (*keystore.Key, error) {
	t, err := i.options.Service.Parse(token)
	if err != nil {
		return nil, err
	}
	c, err := t.Caller(ctx, i.manager, i.options.Service.Scopes)
	if err != nil {
		return nil, err
	}
	if c.Organization() == "" { // Auditor.Erase has left it
		return nil, keystore.ErrNotFound
	}
	return i.Key(ctx, c.Organization(), c.KeyID())
}

// owned returns what the store gave, or an error that wraps
// [keystore.ErrCorrupt] when that is neither a key nor an error, or a key of
// another organization.
func owned(k *keystore.Key, err error, organization string) (*keystore.Key, error) {
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, fmt.Errorf("%w: the store returned neither a key nor an error", keystore.ErrCorrupt)
	case k.Organization != organization:
		return nil, fmt.Errorf("%w: key %q came for another organization", keystore.ErrCorrupt, k.ID)
	}
	return k, nil
}
