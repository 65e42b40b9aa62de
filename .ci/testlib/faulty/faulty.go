// Package faulty has a store of keys for tests, which fails or waits where they
// say.
package faulty

import (
	"context"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A Store tells of a call before it makes it, except of AddUses, Changes and
// SweepAudit.
type Store struct {
	issuing.Store
	Before func(call string) error // gets the method's name; its error is that of the call. Nil: all work
}

// At returns a Before with which each call of a method fails.
func At(method string, err error) func(call string) error {
	return func(call string) error {
		if call == method {
			return err
		}
		return nil
	}
}

func told[T any](s *Store, call string, made func() (T, error)) (result T, err error) {
	if s.Before != nil {
		if err := s.Before(call); err != nil {
			return result, err
		}
	}
	return made()
}

func (s *Store) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	return told(s, "Lookup", func() (*keystore.Key, error) { return s.Store.Lookup(ctx, d) })
}

func (s *Store) Find(ctx context.Context, organization, id string) (*keystore.Key, error) {
	return told(s, "Find", func() (*keystore.Key, error) { return s.Store.Find(ctx, organization, id) })
}

func (s *Store) FindIssued(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
	return told(s, "FindIssued", func() (*keystore.Key, error) {
		return s.Store.FindIssued(ctx, organization, actor, token)
	})
}

func (s *Store) List(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
	return told(s, "List", func() (issuing.Listing, error) { return s.Store.List(ctx, organization, q) })
}

func (s *Store) Audit(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
	return told(s, "Audit", func() ([]issuing.AuditEntry, error) { return s.Store.Audit(ctx, organization, q) })
}

func (s *Store) Usage(ctx context.Context, organization, id string) (*issuing.Usage, error) {
	return told(s, "Usage", func() (*issuing.Usage, error) { return s.Store.Usage(ctx, organization, id) })
}

func (s *Store) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	_, err := told(s, "Insert", func() (any, error) { return nil, s.Store.Insert(ctx, k, e, maxKeys) })
	return err
}

func (s *Store) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	_, err := told(s, "Update", func() (any, error) { return nil, s.Store.Update(ctx, k, e) })
	return err
}

func (s *Store) Erase(ctx context.Context, organization string, entry func(keys, entries int) issuing.AuditEntry) (
	keys, entries int, err error,
) {
	_, err = told(s, "Erase", func() (any, error) {
		keys, entries, err = s.Store.Erase(ctx, organization, entry)
		return nil, err
	})
	return keys, entries, err
}
