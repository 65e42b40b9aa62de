package issuing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// Key returns a key of the organization, a copy for the caller, or
// [keystore.ErrNotFound].
func (i *Issuer) Key(ctx context.Context, organization, id string) (*keystore.Key, error) {
	k, err := i.store.Find(ctx, organization, id)
	return owned(k, err, organization)
}

// Keys returns one page of the organization's keys, as [Store.List] does, or
// with [Query.AllOrganizations] of all keys.
//
// All keys that a query selects are read so, some at a time:
//
//	for {
//		page, err := issuer.Keys(ctx, organization, query)
//		if err != nil || len(page.Keys) == 0 {
//			return err
//		}
//		…
//		query.After = page.Keys[len(page.Keys)-1]
//	}
func (i *Issuer) Keys(ctx context.Context, organization string, q Query) (Listing, error) {
	if q.AllOrganizations && organization != "" {
		return Listing{}, errors.New("issuing: Keys of an organization and of all: name none with Query.AllOrganizations")
	}
	page, err := i.store.List(ctx, organization, q)
	if err != nil {
		return Listing{}, err
	}
	for _, k := range page.Keys {
		if q.AllOrganizations && k != nil {
			organization = k.Organization
		}
		if _, err := owned(k, nil, organization); err != nil {
			return Listing{}, err
		}
	}
	return page, nil
}

// Usage is what is known of the use of a key, by it and by its children. A scope
// that is not in Scopes was not needed since ObservedSince, as far as all
// processes record uses. A day is its midnight in UTC.
//
// Requests are those that [keystore.Uses] has recorded. One that was refused
// later, by a limit or for lack of a scope, is among them, and needed no scope.
// Refusals are a sample, see [keystore.Uses.Refuse].
type Usage struct {
	LastUsedAt    time.Time                `json:"last_used_at,omitzero"`   // zero: never used
	LastUsedFrom  netip.Addr               `json:"last_used_from,omitzero"` // the client's address then; zero: unknown
	ObservedSince time.Time                `json:"observed_since,omitzero"` // of Scopes and Days; zero: they are not kept
	Scopes        map[scope.Name]time.Time `json:"scopes,omitempty"`        // the last day on which a request needed it
	Days          []Day                    `json:"days,omitempty"`          // with requests, of the last 30, newest first
	Refusals      []keystore.Refusal       `json:"refusals,omitempty"`      // one of each code, newest first
}

// A Day counts the requests of a day.
type Day struct {
	Date     time.Time `json:"date"`
	Requests int64     `json:"requests"`
}

// Usage returns what is known of the use of a key, or [keystore.ErrNotFound].
func (i *Issuer) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	return i.store.Usage(ctx, organization, id)
}

// KeyOf returns the key of a token that somebody has found, whatever its status.
// It returns a [keystore.TokenError] for a text that cannot be a key, and
// [keystore.ErrNotFound] for one that no organization has. After any other error
// it is not known whose the token is. The key belongs to the caller.
func (i *Issuer) KeyOf(ctx context.Context, token string) (*keystore.Key, error) {
	t, err := i.options.Service.Parse(token)
	if err != nil {
		return nil, err
	}
	c, err := t.Caller(ctx, i.store, i.options.Service.Scopes)
	if err != nil {
		return nil, err
	}
	if c.Organization() == "" { // Store.Erase has left it
		return nil, keystore.ErrNotFound
	}
	return i.Key(ctx, c.Organization(), c.KeyID())
}

// owned returns what the store gave, or [keystore.ErrCorrupt] when that is neither
// a key nor an error, or a key of another organization.
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
