package keystoretest_test

import (
	"context"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A broken store is one in memory in which some methods are replaced. The
// replacements get that one and do with it what a careless store would.
type broken struct {
	issuing.Store
	lookup     func(ctx context.Context, d keystore.Digest) (*keystore.Key, error)
	insert     inserting
	find       func(ctx context.Context, organization, id string) (*keystore.Key, error)
	findIssued func(ctx context.Context, organization, actor, token string) (*keystore.Key, error)
	list       func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error)
	update     func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error
	touch      func(ctx context.Context, uses []keystore.Use) error
	usage      func(ctx context.Context, organization, id string) (*issuing.Usage, error)
	changes    func(ctx context.Context, since string) ([]keystore.Digest, string, error)

	sweepAudit func(ctx context.Context, before time.Time) (int, error)
	erase      erasing
	audit      auditing

	mu       sync.Mutex
	inserted map[string]*keystore.Key // by ID: copies, for stores that look where they should not
}

type (
	inserting func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error
	auditing  func(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error)
	erasing   func(ctx context.Context, organization string, entry erasure) (keys, entries int, err error)
	erasure   = func(keys, entries int) issuing.AuditEntry
)

// breakStore returns a store that change breaks.
func breakStore(change func(b *broken)) *broken {
	m := issuing.NewMemory()
	b := &broken{
		Store: m, lookup: m.Lookup, insert: m.Insert, find: m.Find, findIssued: m.FindIssued, list: m.List,
		update: m.Update, touch: m.AddUses, usage: m.Usage, changes: m.Changes, sweepAudit: m.SweepAudit,
		erase: m.Erase, audit: m.Audit, inserted: make(map[string]*keystore.Key),
	}
	change(b)
	return b
}

func (b *broken) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	err := b.insert(ctx, k, e, maxKeys)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inserted[k.ID] = k.Clone()
	}
	return err
}

// anywhere returns the key with this id, whoever's it is.
func (b *broken) anywhere(id string) *keystore.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.inserted[id]; k != nil {
		return k.Clone()
	}
	return &keystore.Key{}
}

func (b *broken) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	return b.lookup(ctx, d)
}

func (b *broken) Find(ctx context.Context, organization, id string) (*keystore.Key, error) {
	return b.find(ctx, organization, id)
}

func (b *broken) FindIssued(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
	return b.findIssued(ctx, organization, actor, token)
}

func (b *broken) List(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
	return b.list(ctx, organization, q)
}

func (b *broken) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	return b.update(ctx, k, e)
}

func (b *broken) AddUses(ctx context.Context, uses []keystore.Use) error { return b.touch(ctx, uses) }

func (b *broken) Usage(ctx context.Context, organization, id string) (*issuing.Usage, error) {
	return b.usage(ctx, organization, id)
}

func (b *broken) Changes(ctx context.Context, since string) ([]keystore.Digest, string, error) {
	return b.changes(ctx, since)
}
