package issuing

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/sallyport-go/sallyport/internal/transaction"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
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
	return wrong(problem("actor", cmp.Or(field.Text("actor", i.actor), field.Name("actor", i.actor))),
		problem("reason", field.Text("reason", i.reason)))
}

// write stores the key after, which was before, or is new if that is nil, and
// audits the act.
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
