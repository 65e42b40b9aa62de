package issuing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// The reasons for a revocation that tools know, for [Issuer.By]. Any other text
// of at most 255 bytes is one too.
const (
	ReasonLeaked  = "leaked"
	ReasonLeft    = "left" // who used the key has left
	ReasonRotated = "rotated"
	ReasonOther   = "other" // of a revocation without another one
)

// An AuditEntry says who did what to a key, when and why. What is stored of it
// holds no part of a token, and no digest.
type AuditEntry struct {
	ID           string    `json:"id"` // sorts by time
	At           time.Time `json:"at"`
	Act          string    `json:"act"` // issue, delegate, rotate, revoke, suspend, resume, rename, edit, import or erase
	Actor        string    `json:"actor"`
	Organization string    `json:"organization"`
	Key          string    `json:"key,omitempty"` // its id; with rotate that of the new key, with erase empty
	Reason       string    `json:"reason,omitempty"`
	Changes      []Change  `json:"changes,omitempty"` // of a new key: all that is set

	// The Name and Hint that the key has when [Store.Audit] returns the entry,
	// empty if it is gone. They are no part of what is stored.
	KeyName string `json:"key_name,omitempty"`
	KeyHint string `json:"key_hint,omitempty"`
}

// A Change is a field of a [keystore.Key] that an act has changed, such as
// "expires_at", with its text before and after. An erasure counts in "keys" and
// "entries".
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// By returns the Issuer for acts of an actor and for a reason, each of at most
// 255 bytes: they are in the audit, and the actor is the CreatedBy of new keys.
//
//	issuer.By("ada", issuing.ReasonLeaked).Revoke(ctx, "acme", id)
func (i *Issuer) By(actor, reason string) *Issuer {
	by := *i
	by.actor, by.reason = actor, reason
	return &by
}

// An AuditQuery selects entries in [Store.Audit]. The zero AuditQuery selects
// the 100 newest. An entry is listed if all that is asked for holds.
type AuditQuery struct {
	After string // entries with an ID below it: a next page comes after the last ID. Empty: from the newest on
	Limit int    // zero or less: 100; at most 1000

	Key, Act, Actor string    // entries with this Key, Act or Actor. Empty: all
	Since, Until    time.Time // entries from Since on and from before Until. Zero: all

	// AllOrganizations selects entries of each organization, for those who
	// operate the service. No organization is named then.
	AllOrganizations bool
}

// Bounds is for a [Store]: the IDs that are selected are not below from, and
// below the other unless it is empty, and there are at most limit.
func (q AuditQuery) Bounds() (from, below string, limit int) {
	below = q.After
	if !q.Since.IsZero() {
		from = auditID(q.Since)
	}
	if until := auditID(q.Until); !q.Until.IsZero() && (below == "" || until < below) {
		below = until
	}
	return from, below, min(cmp.Or(max(q.Limit, 0), 100), 1000)
}

// Audit returns one page of the audit of the organization, the newest entry
// first, as [Store.Audit] does, or with [AuditQuery.AllOrganizations] of all.
func (i *Issuer) Audit(ctx context.Context, organization string, q AuditQuery) ([]AuditEntry, error) {
	if q.AllOrganizations && organization != "" {
		return nil, errors.New("issuing: Audit of an organization and of all: name none with AuditQuery.AllOrganizations")
	}
	return i.store.Audit(ctx, organization, q)
}

// SweepAudit removes the entries of all organizations that are older than keep,
// and returns how many; and the children that expired or were revoked more than a
// day ago. A program calls it once a day or so, or as often as its children ask
// for. What it has removed stays removed if ctx ends.
func (i *Issuer) SweepAudit(ctx context.Context, keep time.Duration) (removed int, err error) {
	if err := writable(ctx); err != nil {
		return 0, err
	}
	return i.store.SweepAudit(ctx, time.Now().Add(-keep))
}

// Erase removes all keys of an organization and its audit, and returns how many
// of each. One entry stays until it is swept, unless there was nothing: who has
// erased which organization, when and how much, without a reason. Its tokens are
// refused as after a revocation. A key that is issued meanwhile may stay: erase
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
	of := &keystore.Key{Organization: organization}
	e := i.By(i.actor, "").entry("erase", of, of) // a reason may name somebody
	keys, entries, err = i.store.Erase(ctx, organization, func(keys, entries int) AuditEntry {
		e.Changes = []Change{{"keys", fmt.Sprint(keys), "0"}, {"entries", fmt.Sprint(entries), "0"}}
		return e
	})
	if err == nil && keys+entries > 0 {
		i.tell(ctx, e)
	}
	return keys, entries, err
}

// auditID returns what the ids of entries from at on are not below.
func auditID(at time.Time) string { return fmt.Sprintf("act_%014x", at.UnixMicro()) }

// audited are the fields of a key that the audit has, with their texts.
var audited = []struct {
	name string
	text func(*keystore.Key) string
}{
	{"name", func(k *keystore.Key) string { return k.Name }},
	{"environment", func(k *keystore.Key) string { return string(k.Environment) }},
	{"scopes", func(k *keystore.Key) string { return joined(k.Scopes) }},
	{"attributes", func(k *keystore.Key) string {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(k.Attributes)) {
			texts = append(texts, name+"="+k.Attributes[name])
		}
		return joined(texts)
	}},
	{"networks", func(k *keystore.Key) string { return joined(k.Networks) }},
	{"expires_at", func(k *keystore.Key) string { return timeText(k.ExpiresAt) }},
	{"revoked_at", func(k *keystore.Key) string { return timeText(k.RevokedAt) }},
	{"suspended", func(k *keystore.Key) string { return strings.TrimPrefix(fmt.Sprint(k.Suspended), "false") }},
	{"legacy", func(k *keystore.Key) string { return k.Legacy }},
	{"parent", func(k *keystore.Key) string { return k.Parent }},
	{"rotated_from", func(k *keystore.Key) string { return k.RotatedFrom }},
}

// changesOf returns the fields in which after differs from before, which is nil
// for a new key.
func changesOf(before, after *keystore.Key) (changes []Change) {
	if before == nil {
		before = new(keystore.Key)
	}
	for _, f := range audited {
		if b, a := f.text(before), f.text(after); b != a {
			changes = append(changes, Change{f.name, b, a})
		}
	}
	return changes
}

func joined[T any](list []T) string { return strings.Trim(fmt.Sprint(list), "[]") }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
