package keystore

import (
	"context"
	"errors"
)

var (
	_ Manager = (*Cached)(nil)
	_ Toucher = (*Cached)(nil)
	_ Feed    = (*Cached)(nil)
)

func (c *Cached) manager() (Manager, error) {
	if m, ok := c.store.(Manager); ok {
		return m, nil
	}
	return nil, c.unsupported("only looks keys up")
}

// Insert implements [Manager]. When it returns, a lookup of the new key's token
// no longer yields a remembered [ErrNotFound].
func (c *Cached) Insert(ctx context.Context, k *Key) error {
	m, err := c.manager()
	if err != nil {
		return err
	}
	// Also after an error, which can hide a write that took place.
	defer c.Forget(k.Digest)
	return m.Insert(ctx, k)
}

// Find implements [Manager]. It always asks the store.
func (c *Cached) Find(ctx context.Context, organization, id string) (*Key, error) {
	m, err := c.manager()
	if err != nil {
		return nil, err
	}
	return m.Find(ctx, organization, id)
}

// FindIssued implements [Manager]. It always asks the store.
func (c *Cached) FindIssued(ctx context.Context, organization, actor, issueToken string) (*Key, error) {
	m, err := c.manager()
	if err != nil {
		return nil, err
	}
	return m.FindIssued(ctx, organization, actor, issueToken)
}

// List implements [Manager]. It always asks the store.
func (c *Cached) List(ctx context.Context, organization string, p Page) ([]*Key, error) {
	m, err := c.manager()
	if err != nil {
		return nil, err
	}
	return m.List(ctx, organization, p)
}

// Update implements [Manager]. When it returns nil, no later lookup yields the
// key as it was before.
func (c *Cached) Update(ctx context.Context, k *Key) error {
	m, err := c.manager()
	if err != nil {
		return err
	}
	defer c.Forget(k.Digest)
	return m.Update(ctx, k)
}

// Touch implements [Toucher]. Remembered keys keep the LastUsedAt they were
// loaded with.
func (c *Cached) Touch(ctx context.Context, uses []Use) error {
	t, ok := c.store.(Toucher)
	if !ok {
		return c.unsupported("does not keep when keys were last used")
	}
	return t.Touch(ctx, uses)
}

// Changes implements [Feed], for a Cached in front of a Cached. What it passes
// on it forgets, so that the other one does not load from it what has changed.
func (c *Cached) Changes(ctx context.Context, since string) (changed []Digest, next string, err error) {
	f, ok := c.store.(Feed)
	if !ok {
		return nil, "", c.unsupported("has no feed")
	}
	changed, next, err = f.Changes(ctx, since)
	if err == nil && since == "" || errors.Is(err, ErrNotFound) {
		c.forgetAll()
	}
	for _, d := range changed {
		c.Forget(d)
	}
	return changed, next, err
}
