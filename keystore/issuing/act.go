package issuing

import (
	"context"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// By returns the Issuer for acts of an actor and for a reason, each of at most
// 255 bytes: they are in the audit, and the actor is the CreatedBy of new keys.
//
//	issuer.By("ada", issuing.ReasonLeaked).Revoke(ctx, "acme", id)
func (i *Issuer) By(actor, reason string) *Issuer {
	by := *i
	by.actor, by.reason = actor, reason
	return &by
}

// Audit returns a page of at most 100 entries, the newest first: of a key, or
// of all keys of the organization if key is empty. The next page comes after
// the ID of the last entry.
func (i *Issuer) Audit(ctx context.Context, organization, key, after string) ([]AuditEntry, error) {
	return i.store.Audit(ctx, organization, key, after)
}

// SweepAudit removes the entries of all organizations that are older than keep,
// and returns how many. It also removes the children that expired or were revoked
// more than a day ago. A program calls it once a day or so, or as often as its
// children ask for. What it has removed stays removed if ctx ends.
func (i *Issuer) SweepAudit(ctx context.Context, keep time.Duration) (removed int, err error) {
	if err := writable(ctx); err != nil {
		return 0, err
	}
	return i.store.SweepAudit(ctx, time.Now().Add(-keep))
}

// Erase removes all keys of an organization and its audit, and returns how many
// of each; only [Options.Audit] is told. Its tokens are refused at once, and
// elsewhere as after a revocation. A key that is issued meanwhile may stay: erase
// again.
func (i *Issuer) Erase(ctx context.Context, organization string) (keys, entries int, err error) {
	if err := writable(ctx); err != nil {
		return 0, 0, err
	}
	p := i.actProblems()
	p.addOwner(organization, "")
	if p != nil {
		return 0, 0, p.err()
	}
	if i.cache != nil {
		defer i.cache.Invalidate() // also after an error
	}
	keys, entries, err = i.store.Erase(ctx, organization)
	if err == nil {
		e := i.entry("erase", &keystore.Key{Organization: organization}, &keystore.Key{Organization: organization})
		e.Changes = []Change{{"keys", fmt.Sprint(keys), "0"}, {"entries", fmt.Sprint(entries), "0"}}
		i.tell(ctx, e)
	}
	return keys, entries, err
}
