package issuing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/keystore/internal/transaction"
)

// writable returns an error in the context of a transaction.
func writable(ctx context.Context) error {
	if !transaction.In(ctx) {
		return nil
	}
	return fmt.Errorf("issuing: an Issuer cannot write in the transaction of a joined request: "+
		"serve this route in lease mode, by an idem.Runner without Join: %w", errors.ErrUnsupported)
}

func (i *Issuer) actProblems() []keystore.FieldError {
	return wrong(problem("actor", field.Text("actor", i.actor)), problem("reason", field.Text("reason", i.reason)))
}

// write stores the key after, which was before, or is new if that is nil, and
// audits the act.
func (i *Issuer) write(ctx context.Context, act string, before, after *keystore.Key, maxKeys int) error {
	e := i.entry(act, before, after)
	err := i.store(ctx, before == nil, after, e, maxKeys)
	if err == nil {
		i.tell(ctx, e)
	}
	return err
}

func (i *Issuer) store(ctx context.Context, isNew bool, k *keystore.Key, e AuditEntry, maxKeys int) error {
	defer i.forget(k) // also after an error, which can hide a write that took place
	switch {
	case i.auditor != nil && isNew:
		return i.auditor.InsertAudited(ctx, k, e, maxKeys)
	case i.auditor != nil:
		return i.auditor.UpdateAudited(ctx, k, e)
	case isNew:
		if err := i.room(ctx, k.Organization, root(k), maxKeys, counts); err != nil {
			return err
		}
		return i.manager.Insert(ctx, k)
	}
	return i.manager.Update(ctx, k)
}

// forget drops what the cache remembers of a key, so that the next lookup asks
// the store.
func (i *Issuer) forget(k *keystore.Key) {
	if i.cache != nil {
		i.cache.Invalidate(k.Digest)
	}
}

// tell tells of an act that has taken place, even if ctx has ended.
func (i *Issuer) tell(ctx context.Context, e AuditEntry) {
	if i.options.Audit != nil {
		i.options.Audit(context.WithoutCancel(ctx), e)
	}
}

func (i *Issuer) entry(act string, before, after *keystore.Key) AuditEntry {
	at := field.Now()
	return AuditEntry{
		ID: auditID(at) + strings.ToLower(rand.Text()[:8]), At: at, Act: act, Actor: i.actor,
		Organization: after.Organization, Key: after.ID, Reason: i.reason, Changes: changesOf(before, after),
	}
}

// root returns the id of the last of the ancestors, "" if there are none.
func root(k *keystore.Key) string {
	if n := len(k.Ancestors); n > 0 {
		return k.Ancestors[n-1].ID
	}
	return k.Parent
}

// room returns [ErrTooManyKeys] if the organization has maxKeys keys below the
// one with the id root, or without a parent, that count, unless maxKeys is zero.
// It reads the lists.
func (i *Issuer) room(
	ctx context.Context, organization, root string, maxKeys int, counts func(*keystore.Key, time.Time) bool,
) error {
	now, count, page, parents := time.Now(), 0, Page{Limit: 200}, []string{root}
	for maxKeys > 0 && len(parents) > 0 {
		page.Parent = parents[0]
		keys, err := i.Keys(ctx, organization, page)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			parents, page.After = parents[1:], nil
			continue
		}
		for _, k := range keys {
			if counts(k, now) {
				count++
			}
			if k.Parent != "" {
				parents = append(parents, k.ID)
			}
		}
		if count >= maxKeys {
			return ErrTooManyKeys
		}
		page.After = keys[len(keys)-1]
	}
	return nil
}
