package keystore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// Memory is a [Manager] that keeps keys in the process, for tests and for
// programs that load their keys at start. It never evicts a key: it grows with
// every key inserted, and with the audit until that is swept.
//
// Lookup does not allocate. Memory is also an [Auditor], a [UsageReader] and
// a [Feed], and safe for concurrent use.
type Memory struct {
	mu       sync.RWMutex
	byDigest map[Digest]*record
	byID     map[string]*record
	issued   map[issue]*record
	replaced map[succession]bool
	lists    map[string][]*record // by organization, the oldest first
	changes  changes
	audit    map[string][]AuditEntry // by organization and ID, the lowest first
}

// A record stands for one key through all its versions. The Key it points to is
// replaced and never written to, because requests hold it.
type record struct {
	key   *Key
	usage Usage // without LastUsedAt, which key has
}

// issue is the triple that an issue token is unique in.
type issue struct{ organization, actor, token string }

// succession is the pair of which there is one successor.
type succession struct{ organization, rotatedFrom string }

var (
	_ Auditor     = (*Memory)(nil)
	_ UsageReader = (*Memory)(nil)
	_ Feed        = (*Memory)(nil)
)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		byDigest: make(map[Digest]*record),
		byID:     make(map[string]*record),
		issued:   make(map[issue]*record),
		replaced: make(map[succession]bool),
		lists:    make(map[string][]*record),
		changes:  changes{last: make(map[Digest]uint64)},
		audit:    make(map[string][]AuditEntry),
	}
}

// Lookup implements [Store]. It does not wait and does not look at the context:
// net/http cancels that of a client which has closed its side of the connection
// and still waits for the answer.
func (m *Memory) Lookup(_ context.Context, d Digest) (*Key, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r, ok := m.byDigest[d]; ok {
		return r.key, nil
	}
	return nil, ErrNotFound
}

// Insert implements [Manager].
func (m *Memory) Insert(ctx context.Context, k *Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.insert(k)
}

// insert stores k. The lock is held.
func (m *Memory) insert(k *Key) error {
	r := &record{key: stored(k)}
	r.key.Version = 1
	by := issue{k.Organization, k.CreatedBy, k.IssueToken}
	of := succession{k.Organization, k.RotatedFrom}
	if m.byDigest[k.Digest] != nil || m.byID[k.ID] != nil || m.issued[by] != nil {
		return ErrExists
	}
	if m.replaced[of] {
		return ErrRotated
	}
	m.byDigest[k.Digest] = r
	m.byID[k.ID] = r
	if k.IssueToken != "" {
		m.issued[by] = r
	}
	if k.RotatedFrom != "" {
		m.replaced[of] = true
	}
	list := m.lists[k.Organization]
	at, _ := slices.BinarySearchFunc(list, r.key, byAge)
	m.lists[k.Organization] = slices.Insert(list, at, r)
	m.changes.add(k.Digest)
	return nil
}

// Find implements [Manager].
func (m *Memory) Find(ctx context.Context, organization, id string) (*Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.byID[id]
	if r == nil || r.key.Organization != organization {
		return nil, ErrNotFound
	}
	return r.key.Clone(), nil
}

// FindIssued implements [Manager].
func (m *Memory) FindIssued(ctx context.Context, organization, actor, issueToken string) (*Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.issued[issue{organization, actor, issueToken}]
	if r == nil {
		return nil, ErrNotFound
	}
	return r.key.Clone(), nil
}

// List implements [Manager].
func (m *Memory) List(ctx context.Context, organization string, p Page) ([]*Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := time.Now()
	p.ExpiresBefore, p.UnusedSince = wallTime(p.ExpiresBefore), wallTime(p.UnusedSince)
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := m.lists[organization]
	end := len(list)
	if p.After != nil {
		end, _ = slices.BinarySearchFunc(list, p.After, byAge)
	}
	var page []*Key
	for i := end - 1; i >= 0 && len(page) < p.Size(); i-- {
		if k := list[i].key; p.selects(k, now) {
			page = append(page, k.Clone())
		}
	}
	return page, nil
}

// Update implements [Manager].
func (m *Memory) Update(ctx context.Context, k *Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.update(k)
}

// update changes k. The lock is held.
func (m *Memory) update(k *Key) error {
	given := stored(k)
	r := m.byID[k.ID]
	if r == nil || r.key.Organization != k.Organization || r.key.Digest != k.Digest {
		return ErrNotFound
	}
	if r.key.Version != k.Version {
		return ErrConflict
	}
	next := *r.key
	next.Name = given.Name
	next.Scopes = given.Scopes
	next.Attributes = given.Attributes
	next.Networks = given.Networks
	next.ExpiresAt = given.ExpiresAt
	next.RevokedAt = given.RevokedAt
	next.Suspended = given.Suspended
	next.Version++
	r.key = &next
	m.changes.add(k.Digest)
	return nil
}

// Touch implements [Toucher].
func (m *Memory) Touch(ctx context.Context, uses []Use) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses {
		u.At = wallTime(u.At)
		r := m.byID[u.ID]
		if r == nil || r.key.Organization != u.Organization {
			continue
		}
		if u.At.After(r.key.LastUsedAt) {
			next := *r.key
			next.LastUsedAt, r.usage.LastUsedFrom = u.At, u.From
			r.key = &next
		}
		r.usage.add(u)
	}
	return nil
}

// Usage implements [UsageReader].
func (m *Memory) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.byID[id]
	if r == nil || r.key.Organization != organization {
		return nil, ErrNotFound
	}
	u := r.usage
	u.LastUsedAt, u.Scopes, u.Days = r.key.LastUsedAt, maps.Clone(u.Scopes), u.lastDays()
	return &u, nil
}

// add counts the requests of a use and the scopes that they needed.
func (u *Usage) add(use Use) {
	day := use.At.UTC().Truncate(oneDay)
	for _, n := range use.Scopes {
		if u.Scopes == nil {
			u.Scopes = make(map[scope.Name]time.Time)
		}
		if day.After(u.Scopes[n]) {
			u.Scopes[n] = day
		}
	}
	if use.Requests == 0 {
		return
	}
	if u.ObservedSince.IsZero() {
		u.ObservedSince = use.At
	}
	u.Days = u.lastDays()
	at, found := slices.BinarySearchFunc(u.Days, day, func(d Day, day time.Time) int { return day.Compare(d.Date) })
	if !found {
		u.Days = slices.Insert(u.Days, at, Day{Date: day})
	}
	u.Days[at].Requests += use.Requests
}

const (
	oneDay    = 24 * time.Hour
	usageDays = 30
)

// lastDays returns a copy of the days that are kept.
func (u *Usage) lastDays() []Day {
	oldest := time.Now().Add(-(usageDays - 1) * oneDay).UTC().Truncate(oneDay)
	return slices.DeleteFunc(slices.Clone(u.Days), func(d Day) bool { return d.Date.Before(oldest) })
}

// Changes implements [Feed]. Positions are those of this Memory and mean
// nothing to another one.
func (m *Memory) Changes(ctx context.Context, since string) (changed []Digest, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changes.after(since)
}

// stored returns a copy of a key with times of the wall clock alone.
func stored(k *Key) *Key {
	c := k.Clone()
	c.CreatedAt = wallTime(c.CreatedAt)
	c.ExpiresAt = wallTime(c.ExpiresAt)
	c.RevokedAt = wallTime(c.RevokedAt)
	c.LastUsedAt = wallTime(c.LastUsedAt)
	return c
}

func byAge(r *record, k *Key) int {
	return cmp.Or(r.key.CreatedAt.Compare(k.CreatedAt), cmp.Compare(r.key.ID, k.ID))
}
