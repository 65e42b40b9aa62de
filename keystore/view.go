package keystore

import (
	"context"
	"errors"
	"fmt"
)

// Key returns a key of the organization, or [ErrNotFound]. The key belongs to
// the caller.
func (i *Issuer) Key(ctx context.Context, organization, id string) (*Key, error) {
	k, err := i.manager.Find(ctx, organization, id)
	return owned(k, err, organization)
}

// Keys returns one page of the organization's keys, as [Manager.List] does.
func (i *Issuer) Keys(ctx context.Context, organization string, p Page) ([]*Key, error) {
	keys, err := i.manager.List(ctx, organization, p)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if _, err := owned(k, nil, organization); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// Usage returns what is known of the use of a key, or [ErrNotFound]. The error
// wraps [errors.ErrUnsupported] when the store is no [UsageReader].
func (i *Issuer) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	r, ok := i.manager.(UsageReader)
	if !ok {
		return nil, fmt.Errorf("keystore: %T does not keep how keys are used: %w", i.manager, errors.ErrUnsupported)
	}
	return r.Usage(ctx, organization, id)
}

// KeyOf returns the key of a token that somebody has found, whatever the status
// of the key. It returns a [TokenError] for a text that cannot be a key, and
// [ErrNotFound] for one that no organization has. After any other error it is
// not known whose the token is. The key belongs to the caller.
func (i *Issuer) KeyOf(ctx context.Context, token string) (*Key, error) {
	t, err := i.service.Parse(token)
	if err != nil {
		return nil, err
	}
	c, err := t.Caller(ctx, i.manager, i.service.Scopes)
	if err != nil {
		return nil, err
	}
	if c.Organization() == "" { // Auditor.Erase has left it
		return nil, ErrNotFound
	}
	return i.Key(ctx, c.Organization(), c.ID())
}

// owned returns what the store gave, or an error that wraps [ErrCorrupt] when
// that is neither a key nor an error, or a key of another organization.
func owned(k *Key, err error, organization string) (*Key, error) {
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, fmt.Errorf("%w: the store returned neither a key nor an error", ErrCorrupt)
	case k.Organization != organization:
		return nil, fmt.Errorf("%w: key %q came for another organization", ErrCorrupt, k.ID)
	}
	return k, nil
}
