package issuing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/internal/transaction"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// writable returns an error in the context of a transaction.
func writable(ctx context.Context) error {
	if !transaction.In(ctx) {
		return nil
	}
	return fmt.Errorf("issuing: an Issuer cannot write in the transaction of a joined request: "+
		"serve this route in lease mode, by an idem.Runner without Join: %w", errors.ErrUnsupported)
}

// write stores the key after, new if before is nil, and audits the act.
func (i *Issuer) write(ctx context.Context, act string, before, after *keystore.Key, maxKeys int) error {
	e := i.entry(act, before, after)
	defer i.forget(after) // also after an error, which can hide a write that took place
	var err error
	if before == nil {
		err = i.store.Insert(ctx, after, e, maxKeys)
	} else {
		err = i.store.Update(ctx, after, e)
	}
	if err == nil {
		i.tell(ctx, e)
	}
	return err
}

// forget makes the next lookup of a key ask the store.
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

// make returns a new token, and its record at now with those fields of k that its
// owner chooses.
func (i *Issuer) make(k *keystore.Key, now time.Time, ancestors ...*keystore.Key) (keystore.Secret, *keystore.Key) {
	secret := i.options.Service.Generate(k.Environment, ancestors...)
	text := secret.Reveal()
	made := newKey(k, keystore.DigestOf(text), hintOf(text), now)
	made.CreatedBy, made.Ancestors = i.actor, ancestors
	if len(ancestors) > 0 {
		made.Parent = ancestors[0].ID
	}
	return secret, made
}

// newKey returns the record of a token, as make does.
func newKey(k *keystore.Key, d keystore.Digest, hint string, now time.Time) *keystore.Key {
	return &keystore.Key{
		ID: "key_" + xid.New().String(), Digest: d, Hint: hint, CreatedAt: now, Version: 1,
		Organization: k.Organization, Environment: k.Environment, Name: k.Name, IssueToken: k.IssueToken,
		Scopes: once(k.Scopes), Attributes: field.Attributes(k.Attributes), Networks: field.Networks(k.Networks),
		ExpiresAt: field.Time(k.ExpiresAt),
	}
}

// hintOf returns the end of a token, by which its owner recognizes it.
func hintOf(token string) string { return token[len(token)-4:] }

func once(names []scope.Name) []scope.Name {
	kept := make([]scope.Name, 0, len(names))
	for _, n := range names {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}
