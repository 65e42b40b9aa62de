package issuing

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// memory is what [NewMemory] returns.
type memory struct {
	mu      sync.RWMutex
	keys    map[keystore.Digest]*record
	audit   []AuditEntry // the lowest ID first
	changes uint64       // how many there were
}

// A record stands for one key through all its versions. The Key it points to is
// replaced and never written to, because requests hold it.
type record struct {
	key     *keystore.Key // nil: it was erased
	usage   Usage         // without LastUsedAt, which key has
	root    string
	changed uint64 // the number of its last change
}

// InMemory returns the keys of a service, none yet, and their Issuer: a
// [keystore.Cached] in front of [NewMemory], both with their defaults.
func InMemory(s keystore.Service) (*keystore.Cached, *Issuer) {
	keys := keystore.NewCached(NewMemory(), keystore.CacheOptions{Service: s})
	return keys, New(keys, Options{})
}

// NewMemory returns a store that keeps keys in the process, for tests,
// demonstrations and programs with some thousands of keys: all but Lookup, which
// does not allocate, reads each of them. It grows with every key, and with the
// audit until that is swept. The positions of its feed mean nothing elsewhere.
func NewMemory() Store { return &memory{keys: make(map[keystore.Digest]*record)} }

// do runs f alone, unless ctx has ended.
func (m *memory) do(ctx context.Context, f func() error) error {
	_, err := result(ctx, m, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// result is do of what has a result.
func result[T any](ctx context.Context, m *memory, f func() (T, error)) (none T, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return f()
}

// find returns the record of the key of the organization for which is holds, or
// nil. The lock is held.
func (m *memory) find(organization string, is func(*keystore.Key) bool) *record {
	for _, r := range m.keys {
		if r.key != nil && r.key.Organization == organization && is(r.key) {
			return r
		}
	}
	return nil
}

func (m *memory) byID(organization, id string) *record {
	return m.find(organization, func(k *keystore.Key) bool { return k.ID == id })
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
		parent := m.byID(k.Organization, a.Parent)
		if parent == nil {
			break
		}
		a = parent.key.Clone()
		k.Ancestors = append(k.Ancestors, a)
	}
	return k
}

// Lookup implements [keystore.Store]. It does not look at the context: net/http
// cancels that of a client which has closed its side and waits for the answer.
func (m *memory) Lookup(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r := m.keys[d]; r != nil && r.key != nil {
		return m.whole(r.key), nil
	}
	return nil, keystore.ErrNotFound
}

func (m *memory) Insert(ctx context.Context, k *keystore.Key, e AuditEntry, maxKeys int) error {
	return m.do(ctx, func() error {
		added := &record{key: stored(k), root: root(k)}
		added.key.Version = 1
		exists, rotated, live, now := false, false, 0, time.Now()
		for _, r := range m.keys {
			if o := r.key; o != nil {
				ours := o.Organization == k.Organization
				exists = exists || o.Digest == k.Digest || o.ID == k.ID ||
					ours && k.IssueToken != "" && o.CreatedBy == k.CreatedBy && o.IssueToken == k.IssueToken
				rotated = rotated || ours && k.RotatedFrom != "" && o.RotatedFrom == k.RotatedFrom
				if ours && r.root == added.root && counts(o, now) {
					live++
				}
			}
		}
		switch {
		case maxKeys > 0 && live >= maxKeys:
			return ErrTooManyKeys
		case exists:
			return ErrExists
		case rotated:
			return ErrRotated
		}
		m.keys[k.Digest] = added
		m.change(added)
		m.enter(e)
		return nil
	})
}

// counts reports whether the key is one of Options.MaxKeys.
func counts(k *keystore.Key, now time.Time) bool {
	return k.RevokedAt.IsZero() && k.Status(now) != keystore.Expired
}

// root returns the id of the last of the ancestors, "" if there are none.
func root(k *keystore.Key) string {
	if n := len(k.Ancestors); n > 0 {
		return k.Ancestors[n-1].ID
	}
	return k.Parent
}

// enter keeps an entry, and change numbers a change. The lock is held.
func (m *memory) enter(e AuditEntry) {
	e.Changes = slices.Clone(e.Changes)
	at, _ := slices.BinarySearchFunc(m.audit, e.ID, func(e AuditEntry, id string) int { return strings.Compare(e.ID, id) })
	m.audit = slices.Insert(m.audit, at, e)
}

func (m *memory) change(r *record) {
	m.changes++
	r.changed = m.changes
}

func (m *memory) Update(ctx context.Context, k *keystore.Key, e AuditEntry) error {
	return m.do(ctx, func() error {
		r := m.byID(k.Organization, k.ID)
		switch {
		case r == nil || r.key.Digest != k.Digest:
			return keystore.ErrNotFound
		case r.key.Version != k.Version:
			return ErrConflict
		}
		given, next := stored(k), *r.key
		next.Name, next.Scopes, next.Attributes = given.Name, given.Scopes, given.Attributes
		next.Networks, next.Suspended = given.Networks, given.Suspended
		next.ExpiresAt, next.RevokedAt = given.ExpiresAt, given.RevokedAt
		next.Version++
		r.key = &next
		m.change(r)
		m.enter(e)
		return nil
	})
}

func (m *memory) Find(ctx context.Context, organization, id string) (*keystore.Key, error) {
	return m.one(ctx, organization, func(k *keystore.Key) bool { return k.ID == id })
}

func (m *memory) FindIssued(ctx context.Context, organization, actor, issueToken string) (*keystore.Key, error) {
	return m.one(ctx, organization, func(k *keystore.Key) bool {
		return issueToken != "" && k.CreatedBy == actor && k.IssueToken == issueToken
	})
}

// one returns a copy of the key of the organization for which is holds.
func (m *memory) one(ctx context.Context, organization string, is func(*keystore.Key) bool) (*keystore.Key, error) {
	return result(ctx, m, func() (*keystore.Key, error) {
		if r := m.find(organization, is); r != nil {
			return m.whole(r.key).Clone(), nil
		}
		return nil, keystore.ErrNotFound
	})
}

func (m *memory) List(ctx context.Context, organization string, q Query) (Listing, error) {
	return result(ctx, m, func() (page Listing, err error) {
		now := time.Now()
		for _, r := range m.keys {
			if k := r.key; k != nil && (q.AllOrganizations || k.Organization == organization) && q.selects(k, now) &&
				r.usage.leaves(k, q.ScopesUnusedSince) && (q.After == nil || q.compare(q.After, k) < 0) {
				page.Keys = append(page.Keys, k)
			}
		}
		if q.Total {
			page.Total = len(page.Keys)
		}
		slices.SortFunc(page.Keys, q.compare)
		page.Keys = page.Keys[:min(len(page.Keys), cmp.Or(max(q.Limit, 0), 50), 200)]
		for i, k := range page.Keys {
			page.Keys[i] = k.Clone()
		}
		if q.Children {
			page.Children = m.children(page.Keys, now)
		}
		return page, nil
	})
}

// children counts the live children of keys. The lock is held.
func (m *memory) children(keys []*keystore.Key, now time.Time) map[string]int {
	count := make(map[string]int)
	for _, r := range m.keys {
		if k := r.key; k != nil && k.Parent != "" && counts(k, now) && slices.ContainsFunc(keys,
			func(p *keystore.Key) bool { return p.ID == k.Parent && p.Organization == k.Organization }) {
			count[k.Parent]++
		}
	}
	return count
}

func (m *memory) AddUses(ctx context.Context, uses []keystore.Use) error {
	return m.do(ctx, func() error {
		for _, u := range uses {
			u.At = u.At.Round(0)
			r := m.byID(u.Organization, u.ID)
			if r == nil {
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
	})
}

func (m *memory) Usage(ctx context.Context, organization, id string) (*Usage, error) {
	return result(ctx, m, func() (*Usage, error) {
		r := m.byID(organization, id)
		if r == nil {
			return nil, keystore.ErrNotFound
		}
		kept := r.usage
		kept.LastUsedAt, kept.Scopes, kept.Days = r.key.LastUsedAt, maps.Clone(kept.Scopes), kept.lastDays()
		kept.Refusals = slices.Clone(kept.Refusals)
		return &kept, nil
	})
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
	if refused := use.Refused; refused.Code != "" {
		refused.At = refused.At.Round(0)
		u.Refusals = append(slices.DeleteFunc(u.Refusals, func(r keystore.Refusal) bool { return r.Code == refused.Code }),
			refused)
		slices.SortFunc(u.Refusals, func(a, b keystore.Refusal) int { return b.At.Compare(a.At) })
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

// Changes implements [Store]. Positions are the numbers of changes.
func (m *memory) Changes(ctx context.Context, since string) (changed []keystore.Digest, next string, err error) {
	err = m.do(ctx, func() error {
		next = strconv.FormatUint(m.changes, 10)
		if since == "" {
			return nil
		}
		position, err := strconv.ParseUint(since, 10, 64)
		if err != nil || position > m.changes {
			next = ""
			return keystore.ErrNotFound
		}
		for d, r := range m.keys {
			if r.changed > position {
				changed = append(changed, d)
			}
		}
		return nil
	})
	return changed, next, err
}

// ChangedHereOnly tells a [keystore.Cached] that it misses nothing if
// [keystore.Cached.Run] is not called.
func (m *memory) ChangedHereOnly() {}

func (m *memory) Audit(ctx context.Context, organization string, q AuditQuery) ([]AuditEntry, error) {
	return result(ctx, m, func() (page []AuditEntry, err error) {
		from, below, limit := q.Bounds()
		for _, e := range slices.Backward(m.audit) {
			if len(page) < limit && (q.AllOrganizations || e.Organization == organization) &&
				(q.Key == "" || q.Key == e.Key) && (q.Act == "" || q.Act == e.Act) && (q.Actor == "" || q.Actor == e.Actor) &&
				e.ID >= from && (below == "" || e.ID < below) {
				e.Changes, e.KeyName, e.KeyHint = slices.Clone(e.Changes), "", ""
				if r := m.byID(e.Organization, e.Key); r != nil {
					e.KeyName, e.KeyHint = r.key.Name, r.key.Hint
				}
				page = append(page, e)
			}
		}
		return page, nil
	})
}

func (m *memory) SweepAudit(ctx context.Context, before time.Time) (removed int, err error) {
	return result(ctx, m, func() (int, error) {
		yesterday := time.Now().Add(-oneDay) // a request is repeated for a day, and then its issue token finds the child
		ended := func(at time.Time) bool { return !at.IsZero() && at.Before(yesterday) }
		maps.DeleteFunc(m.keys, func(_ keystore.Digest, r *record) bool {
			return r.key != nil && r.key.Parent != "" && (ended(r.key.ExpiresAt) || ended(r.key.RevokedAt))
		})
		return m.forget(func(e AuditEntry) bool { return e.At.Before(before) }), nil
	})
}

// forget removes entries of the audit and returns how many.
func (m *memory) forget(old func(AuditEntry) bool) int {
	before := len(m.audit)
	m.audit = slices.DeleteFunc(m.audit, old)
	return before - len(m.audit)
}

func (m *memory) Erase(ctx context.Context, organization string, entry func(keys, entries int) AuditEntry) (
	keys, entries int, err error,
) {
	err = m.do(ctx, func() error {
		for _, r := range m.keys {
			if r.key != nil && r.key.Organization == organization {
				r.key, r.usage = nil, Usage{}
				m.change(r)
				keys++
			}
		}
		entries = m.forget(func(e AuditEntry) bool { return e.Organization == organization && e.Act != "erase" })
		if keys+entries > 0 {
			m.enter(entry(keys, entries))
		}
		return nil
	})
	return keys, entries, err
}

// stored returns a copy of a key, its times without a monotonic reading.
func stored(k *keystore.Key) *keystore.Key {
	c := k.Clone()
	c.Ancestors = nil
	for _, t := range []*time.Time{&c.CreatedAt, &c.ExpiresAt, &c.RevokedAt, &c.LastUsedAt} {
		*t = t.Round(0)
	}
	return c
}
