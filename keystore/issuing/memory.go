package issuing

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// memory is what [NewMemory] returns.
type memory struct {
	mu       sync.RWMutex
	byDigest map[keystore.Digest]*record
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
	key   *keystore.Key
	usage Usage // without LastUsedAt, which key has
	root  string
}

// issue is the triple that an issue token is unique in.
type issue struct{ organization, actor, token string }

// succession is the pair of which there is one successor.
type succession struct{ organization, rotatedFrom string }

// InMemory returns the keys of a service, none yet, and their Issuer: a
// [keystore.Cached] in front of [NewMemory], both with their defaults.
func InMemory(s keystore.Service) (*keystore.Cached, *Issuer) {
	keys := keystore.NewCached(NewMemory(), keystore.CacheOptions{Service: s})
	return keys, New(keys, Options{})
}

// NewMemory returns a store that keeps keys in the process, for tests and for
// programs that load their keys at start. It never evicts a key: it grows with
// every key inserted, and with the audit until that is swept. Lookup does not
// allocate. The positions of its feed mean nothing to another store.
func NewMemory() Store {
	return &memory{
		byDigest: make(map[keystore.Digest]*record),
		byID:     make(map[string]*record),
		issued:   make(map[issue]*record),
		replaced: make(map[succession]bool),
		lists:    make(map[string][]*record),
		changes:  changes{last: make(map[keystore.Digest]uint64)},
		audit:    make(map[string][]AuditEntry),
	}
}

// ancestors is how many a key has at most.
const ancestors = 3

// whole returns k, or a copy of a child with its ancestors. The lock is held.
func (m *memory) whole(k *keystore.Key) *keystore.Key {
	if k.Parent == "" {
		return k
	}
	k = k.Clone()
	for a := k; a.Parent != "" && len(k.Ancestors) < ancestors; {
		parent := m.byID[a.Parent]
		if parent == nil || parent.key.Organization != k.Organization {
			break
		}
		a = parent.key.Clone()
		k.Ancestors = append(k.Ancestors, a)
	}
	return k
}

// Lookup implements [keystore.Store]. It does not wait and does not look at the
// context: net/http cancels that of a client which has closed its side of the
// connection and still waits for the answer.
func (m *memory) Lookup(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r, ok := m.byDigest[d]; ok {
		return m.whole(r.key), nil
	}
	return nil, keystore.ErrNotFound
}

// write makes a change alone, unless ctx has ended.
func (m *memory) write(ctx context.Context, change func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return change()
}

func (m *memory) Insert(ctx context.Context, k *keystore.Key) error {
	return m.write(ctx, func() error { return m.insert(k) })
}

// insert stores k. The lock is held.
func (m *memory) insert(k *keystore.Key) error {
	r := &record{key: stored(k), root: root(k)}
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

func (m *memory) Find(ctx context.Context, organization, id string) (*keystore.Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.byID[id]
	if r == nil || r.key.Organization != organization {
		return nil, keystore.ErrNotFound
	}
	return m.whole(r.key).Clone(), nil
}

func (m *memory) FindIssued(ctx context.Context, organization, actor, issueToken string) (*keystore.Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.issued[issue{organization, actor, issueToken}]
	if r == nil {
		return nil, keystore.ErrNotFound
	}
	return m.whole(r.key).Clone(), nil
}

func (m *memory) List(ctx context.Context, organization string, p Page) ([]*keystore.Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := time.Now()
	p.ExpiresBefore, p.UnusedSince = wallTime(p.ExpiresBefore), wallTime(p.UnusedSince)
	total := 0
	m.mu.RLock()
	defer m.mu.RUnlock()
	organizations := []string{organization}
	if p.AllOrganizations {
		organizations = slices.Sorted(maps.Keys(m.lists))
	}
	var page []*keystore.Key
	for _, o := range slices.Backward(organizations) {
		list := m.lists[o]
		end := len(list)
		switch {
		case p.After == nil || p.byExpiry() || p.AllOrganizations && o < p.After.Organization:
		case p.AllOrganizations && o > p.After.Organization:
			end = 0
		default:
			end, _ = slices.BinarySearchFunc(list, p.After, byAge)
		}
		for i := end - 1; i >= 0 && (len(page) < p.Size() || p.Total != nil || p.byExpiry()); i-- {
			k := list[i].key
			if p.byExpiry() && p.After != nil && byEnd(k, p.After) <= 0 {
				continue
			}
			if p.selects(k, now) && list[i].usage.leaves(k, p.ScopesUnusedSince) {
				if total++; len(page) < p.Size() || p.byExpiry() {
					page = append(page, k)
				}
			}
		}
	}
	if p.byExpiry() {
		slices.SortFunc(page, byEnd)
		page = page[:min(len(page), p.Size())]
	}
	for i, k := range page {
		page[i] = k.Clone()
	}
	if p.Total != nil {
		*p.Total = total
	}
	if p.Children != nil {
		m.countChildren(page, *p.Children, now)
	}
	return page, nil
}

// countChildren sets how many live children the keys of a page have. The lock is
// held.
func (m *memory) countChildren(page []*keystore.Key, children map[string]int, now time.Time) {
	for _, k := range page {
		delete(children, k.ID)
		for _, r := range m.lists[k.Organization] {
			if r.key.Parent == k.ID && counts(r.key, now) {
				children[k.ID]++
			}
		}
	}
}

func (m *memory) Update(ctx context.Context, k *keystore.Key) error {
	return m.write(ctx, func() error { return m.update(k) })
}

// update changes k. The lock is held.
func (m *memory) update(k *keystore.Key) error {
	given := stored(k)
	r := m.byID[k.ID]
	if r == nil || r.key.Organization != k.Organization || r.key.Digest != k.Digest {
		return keystore.ErrNotFound
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

func (m *memory) Touch(ctx context.Context, uses []keystore.Use) error {
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

func (m *memory) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.byID[id]
	if r == nil || r.key.Organization != organization {
		return nil, keystore.ErrNotFound
	}
	u := r.usage
	u.LastUsedAt, u.Scopes, u.Days = r.key.LastUsedAt, maps.Clone(u.Scopes), u.lastDays()
	return &u, nil
}

// leaves reports whether requests since the day of a time, unless it is zero,
// have needed some scopes of k and not the others.
func (u *Usage) leaves(k *keystore.Key, since time.Time) bool {
	needed, day := 0, since.UTC().Truncate(oneDay)
	for _, n := range k.Scopes {
		if last := u.Scopes[n]; !last.IsZero() && !last.Before(day) {
			needed++
		}
	}
	return since.IsZero() ||
		!u.ObservedSince.IsZero() && !u.ObservedSince.After(since) && 0 < needed && needed < len(k.Scopes)
}

// add counts the requests of a use and the scopes that they needed.
func (u *Usage) add(use keystore.Use) {
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

func (m *memory) Changes(ctx context.Context, since string) (changed []keystore.Digest, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changes.after(since)
}

// ChangedHereOnly tells a [keystore.Cached] that it misses nothing if
// [keystore.Cached.Run] is not called.
func (m *memory) ChangedHereOnly() {}

// stored returns a copy of a key with times of the wall clock alone.
func stored(k *keystore.Key) *keystore.Key {
	c := k.Clone()
	c.Ancestors = nil
	c.CreatedAt = wallTime(c.CreatedAt)
	c.ExpiresAt = wallTime(c.ExpiresAt)
	c.RevokedAt = wallTime(c.RevokedAt)
	c.LastUsedAt = wallTime(c.LastUsedAt)
	return c
}

// wallTime returns t without its monotonic reading.
func wallTime(t time.Time) time.Time { return t.Round(0) }

func byAge(r *record, k *keystore.Key) int {
	return cmp.Or(r.key.CreatedAt.Compare(k.CreatedAt), cmp.Compare(r.key.ID, k.ID))
}

func byEnd(a, b *keystore.Key) int {
	return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
}
