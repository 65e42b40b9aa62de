package keystore

import (
	"context"
	"errors"
	"fmt"
)

var _ Manager = (*Cached)(nil)

// A manager is what a [Cached] passes on to its store: Find, FindIssued, List,
// Touch and Usage as they are.
type manager interface {
	Manager
	UsageReader
}

// Insert implements [Manager]. When it returns, a lookup of the new key's token
// no longer yields a remembered [ErrNotFound].
func (c *Cached) Insert(ctx context.Context, k *Key) error {
	// Also after an error, which can hide a write that took place.
	defer c.Invalidate(k.Digest)
	return c.manager.Insert(ctx, k)
}

// Update implements [Manager]. When it returns nil, no later lookup yields the
// key as it was before.
func (c *Cached) Update(ctx context.Context, k *Key) error {
	defer c.Invalidate(k.Digest)
	return c.manager.Update(ctx, k)
}

// An auditWriter is the Auditor of a Cached and forgets as Insert and Update do.
type auditWriter struct {
	Auditor
	cache *Cached
}

func (w auditWriter) InsertAudited(ctx context.Context, k *Key, e AuditEntry, maxKeys int) error {
	defer w.cache.Invalidate(k.Digest)
	return w.Auditor.InsertAudited(ctx, k, e, maxKeys)
}

func (w auditWriter) UpdateAudited(ctx context.Context, k *Key, e AuditEntry) error {
	defer w.cache.Invalidate(k.Digest)
	return w.Auditor.UpdateAudited(ctx, k, e)
}

func (w auditWriter) Erase(ctx context.Context, organization string) (keys, entries int, err error) {
	defer w.cache.forgetAll()
	return w.Auditor.Erase(ctx, organization)
}

// partial makes a manager of a store that lacks methods of one.
type partial struct{ Store }

// managerOf returns s as a manager. What it lacks returns an error.
func managerOf(s Store) manager {
	if m, ok := s.(manager); ok {
		return m
	}
	p := partial{s}
	if m, ok := s.(Manager); ok {
		return struct {
			Manager
			UsageReader
		}{m, p}
	}
	return p
}

func (p partial) lacks(what string) error {
	return fmt.Errorf("keystore: %T %s: %w", p.Store, what, errors.ErrUnsupported)
}

func (p partial) managing() error { return p.lacks("only looks keys up") }

func (p partial) Insert(context.Context, *Key) error                 { return p.managing() }
func (p partial) Update(context.Context, *Key) error                 { return p.managing() }
func (p partial) Find(context.Context, string, string) (*Key, error) { return nil, p.managing() }
func (p partial) List(context.Context, string, Page) ([]*Key, error) { return nil, p.managing() }
func (p partial) FindIssued(_ context.Context, _, _, _ string) (*Key, error) {
	return nil, p.managing()
}

func (p partial) Touch(ctx context.Context, uses []Use) error {
	if t, ok := p.Store.(Toucher); ok {
		return t.Touch(ctx, uses)
	}
	return p.lacks("does not keep when keys were last used")
}

func (p partial) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	if r, ok := p.Store.(UsageReader); ok {
		return r.Usage(ctx, organization, id)
	}
	return nil, p.lacks("does not keep how keys are used")
}
