package keystoretest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// brokenAudits break what is promised of the audit.
var brokenAudits = []defect{
	{"audits no new key", []string{"Audit/Insert", "Audit/Pages", "Audit/MaxKeys", "Audit/Sweep"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			e.Key, e.Organization = "", ""
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
	}},
	{"pages entries of any organization", []string{"Audit/Query", "Audit/Pages"}, func(b *broken) {
		b.audit = func(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
			q.AllOrganizations = true
			return b.Store.Audit(ctx, organization, q)
		}
	}},
	asks("has no entries of all organizations", func(q *issuing.AuditQuery) { q.AllOrganizations = false }),
	asks("does not know Limit", func(q *issuing.AuditQuery) { q.Limit = 0 }),
	asks("does not know Key", func(q *issuing.AuditQuery) { q.Key = "" }),
	asks("does not know Act", func(q *issuing.AuditQuery) { q.Act = "" }),
	asks("does not know Actor", func(q *issuing.AuditQuery) { q.Actor = "" }),
	asks("does not know Since", func(q *issuing.AuditQuery) { q.Since = time.Time{} }),
	asks("does not know Until", func(q *issuing.AuditQuery) { q.Until = time.Time{} }),
	asks("takes Until as the last moment", func(q *issuing.AuditQuery) {
		if !q.Until.IsZero() {
			q.Until = q.Until.Add(time.Microsecond)
		}
	}),
	asks("takes After in place of Until", func(q *issuing.AuditQuery) {
		if q.After != "" {
			q.Until = time.Time{}
		}
	}),
	asks("takes Until in place of After", func(q *issuing.AuditQuery) {
		if !q.Until.IsZero() {
			q.After = ""
		}
	}),
	{"names the keys of other organizations", []string{"Audit/Query"}, entries(func(b *broken, e *issuing.AuditEntry) {
		e.KeyName, e.KeyHint = b.anywhere(e.Key).Name, b.anywhere(e.Key).Hint
	})},
	{"names a key as it was", []string{"Audit/Update"}, entries(func(b *broken, e *issuing.AuditEntry) {
		e.KeyName = b.anywhere(e.Key).Name
	})},
	{"names no keys", []string{"Audit/Query"}, entries(func(_ *broken, e *issuing.AuditEntry) {
		e.KeyName, e.KeyHint = "", ""
	})},
	{"audits what it did not do", []string{"Context/Writes"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			other := k.Clone()
			other.ID, other.Digest, other.IssueToken, other.RotatedFrom = "other", keystore.Digest{1}, "", ""
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), b.Store.Insert(context.WithoutCancel(ctx), other, e, 0))
			}
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
	}},
	{"audits no change", []string{"Audit/Update", "Update/Race", "Audit/Pages"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			e.Key, e.Organization = "", ""
			return b.Store.Update(ctx, k, e)
		}
	}},
	{"counts before it inserts", []string{"Audit/MaxKeysRace", "Audit/MaxChildrenRace"}, func(b *broken) {
		arrived := make(chan struct{}, 100)
		counting(func() {
			for arrived <- struct{}{}; len(arrived) < 2; {
				time.Sleep(time.Millisecond)
			}
		})(b)
	}},
	{"counts every key", []string{"Audit/MaxKeys"}, counting(func() {})},
	{"counts children among the others", []string{"Audit/MaxChildren"},
		edited(func(k *keystore.Key) { k.Parent, k.Ancestors = "", nil })},
	{"counts the children of the parent alone", []string{"Audit/MaxChildren"},
		edited(func(k *keystore.Key) { k.Ancestors = nil })},
	{"leaves the parent of an erased key", []string{"Erase/Children"}, func(b *broken) {
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := b.Store.Lookup(ctx, d)
			for _, was := range b.inserted {
				if err != nil && was.Digest == d {
					return was, nil
				}
			}
			return k, err
		}
	}},
	{"sweeps no child", []string{"Audit/SweepChildren"}, func(b *broken) {
		b.sweepAudit = func(context.Context, time.Time) (int, error) { return 0, nil }
	}},
	{"sweeps everything", []string{"Audit/Sweep"}, func(b *broken) {
		b.sweepAudit = func(ctx context.Context, _ time.Time) (int, error) {
			return b.Store.SweepAudit(ctx, time.Now().Add(time.Hour))
		}
	}},
	{"erases the list alone", []string{"Erase/Organization", "Erase/Feed"}, func(b *broken) {
		b.erase = func(context.Context, string, erasure) (int, int, error) { return 2, 2, nil }
	}},
	{"erases without a trace", []string{"Erase/Organization"}, func(b *broken) {
		b.audit = func(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
			page, err := b.Store.Audit(ctx, organization, q)
			return slices.DeleteFunc(page, func(e issuing.AuditEntry) bool { return e.Act == "erase" }), err
		}
	}},
	{"tells an erasure before it counts", []string{"Erase/Organization"}, func(b *broken) {
		b.erase = func(ctx context.Context, organization string, entry erasure) (int, int, error) {
			told := entry(0, 0)
			return b.Store.Erase(ctx, organization, func(int, int) issuing.AuditEntry { return told })
		}
	}},
	{"tells of an erasure of nothing", []string{"Erase/Organization"}, func(b *broken) {
		b.erase = func(ctx context.Context, organization string, entry erasure) (int, int, error) {
			keys, entries, err := b.Store.Erase(ctx, organization, entry)
			if keys+entries == 0 {
				err = b.Store.Insert(ctx, &keystore.Key{ID: rand.Text(), Organization: "none"}, entry(0, 0), 0)
			}
			return keys, entries, err
		}
	}},
	{"counts the entries of erasures", []string{"Erase/Organization"}, func(b *broken) {
		b.erase = func(ctx context.Context, organization string, entry erasure) (int, int, error) {
			keys, entries, err := b.Store.Erase(ctx, organization, entry)
			page, _ := b.Store.Audit(ctx, organization, issuing.AuditQuery{Act: "erase"})
			return keys, entries + len(page) - min(1, entries), err
		}
	}},
	{"keeps the digests of erased keys", []string{"Erase/Organization"},
		unique(issuing.ErrExists, func(k *keystore.Key) string { return string(k.Digest[:]) })},
	{"has no key that is gone in its feed", []string{"Erase/Feed"},
		naming(func(b *broken, changed []keystore.Digest) []keystore.Digest {
			return slices.DeleteFunc(changed, func(d keystore.Digest) bool {
				_, err := b.Store.Lookup(context.Background(), d)
				return err != nil
			})
		})},
}

// asks is a store that takes another query for the one that it gets.
func asks(name string, change func(q *issuing.AuditQuery)) defect {
	return defect{name, []string{"Audit/Query"}, func(b *broken) {
		b.audit = func(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
			change(&q)
			return b.Store.Audit(ctx, organization, q)
		}
	}}
}

// counting counts all keys beside k, and inserts k after that.
func counting(before func()) func(b *broken) {
	return func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			page, err := b.Store.List(ctx, k.Organization, issuing.Query{Parent: k.Parent})
			if err != nil || maxKeys > 0 && len(page.Keys) >= maxKeys {
				return issuing.ErrTooManyKeys
			}
			before()
			return b.Store.Insert(ctx, k, e, 0)
		}
	}
}

// entries returns entries that change has changed.
func entries(change func(b *broken, e *issuing.AuditEntry)) func(b *broken) {
	return func(b *broken) {
		b.audit = func(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
			page, err := b.Store.Audit(ctx, organization, q)
			for i := range page {
				change(b, &page[i])
			}
			return page, err
		}
	}
}

func (b *broken) SweepAudit(ctx context.Context, before time.Time) (int, error) {
	return b.sweepAudit(ctx, before)
}

func (b *broken) Erase(ctx context.Context, organization string, entry erasure) (int, int, error) {
	return b.erase(ctx, organization, entry)
}

func (b *broken) Audit(ctx context.Context, organization string, q issuing.AuditQuery) ([]issuing.AuditEntry, error) {
	return b.audit(ctx, organization, q)
}
