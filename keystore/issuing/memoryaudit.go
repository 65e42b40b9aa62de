package issuing

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// auditPage is how many entries one call returns at most.
const auditPage = 100

func (m *memory) InsertAudited(ctx context.Context, k *keystore.Key, e AuditEntry, maxKeys int) error {
	return m.audited(ctx, e, func() error {
		if maxKeys > 0 {
			now := time.Now()
			for _, r := range m.lists[k.Organization] {
				if r.root == root(k) && counts(r.key, now) {
					maxKeys--
				}
			}
			if maxKeys <= 0 {
				return ErrTooManyKeys
			}
		}
		return m.insert(k)
	})
}

func (m *memory) UpdateAudited(ctx context.Context, k *keystore.Key, e AuditEntry) error {
	return m.audited(ctx, e, func() error { return m.update(k) })
}

// audited does an act and keeps its entry.
func (m *memory) audited(ctx context.Context, e AuditEntry, act func() error) error {
	return m.write(ctx, func() error {
		if err := act(); err != nil {
			return err
		}
		e.Changes = slices.Clone(e.Changes)
		entries := m.audit[e.Organization]
		at, _ := slices.BinarySearchFunc(entries, e.ID, byEntryID)
		m.audit[e.Organization] = slices.Insert(entries, at, e)
		return nil
	})
}

func (m *memory) Audit(ctx context.Context, organization, key, after string) (page []AuditEntry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	entries := m.audit[organization]
	if after != "" {
		end, _ := slices.BinarySearchFunc(entries, after, byEntryID)
		entries = entries[:end]
	}
	for _, e := range slices.Backward(entries) {
		if len(page) < auditPage && (key == "" || key == e.Key) {
			e.Changes = slices.Clone(e.Changes)
			page = append(page, e)
		}
	}
	return page, nil
}

func (m *memory) SweepAudit(ctx context.Context, before time.Time) (removed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweepChildren(time.Now().Add(-childKept))
	for organization, entries := range m.audit {
		kept := slices.DeleteFunc(entries, func(e AuditEntry) bool { return e.At.Before(before) })
		removed += len(entries) - len(kept)
		m.audit[organization] = kept
		if len(kept) == 0 {
			delete(m.audit, organization)
		}
	}
	return removed, nil
}

// childKept is how long a child stays after its end or revocation. A request is
// repeated for a day, and then its issue token still finds the child.
const childKept = 24 * time.Hour

// sweepChildren removes the children that have expired or were revoked before a
// time. The lock is held.
func (m *memory) sweepChildren(before time.Time) {
	for organization, list := range m.lists {
		m.lists[organization] = slices.DeleteFunc(list, func(r *record) bool {
			ended := func(at time.Time) bool { return !at.IsZero() && at.Before(before) }
			gone := r.key.Parent != "" && (ended(r.key.ExpiresAt) || ended(r.key.RevokedAt))
			if gone {
				m.remove(r.key)
				delete(m.changes.last, r.key.Digest)
			}
			return gone
		})
	}
}

// remove removes all of a key but its place in the list. The lock is held.
func (m *memory) remove(k *keystore.Key) {
	delete(m.byDigest, k.Digest)
	delete(m.byID, k.ID)
	delete(m.issued, issue{k.Organization, k.CreatedBy, k.IssueToken})
	delete(m.replaced, succession{k.Organization, k.RotatedFrom})
}

func (m *memory) Erase(ctx context.Context, organization string) (keys, entries int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.lists[organization] {
		m.remove(r.key)
		m.changes.add(r.key.Digest)
	}
	keys, entries = len(m.lists[organization]), len(m.audit[organization])
	delete(m.lists, organization)
	delete(m.audit, organization)
	return keys, entries, nil
}

func byEntryID(e AuditEntry, id string) int { return strings.Compare(e.ID, id) }
