package keystore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// The reasons for a revocation that tools know, for [Issuer.By]. Any other text
// of at most 255 bytes is one too.
const (
	ReasonLeaked  = "leaked"
	ReasonLeft    = "left" // who used the key has left
	ReasonRotated = "rotated"
	ReasonOther   = "other" // of a revocation without another one
)

// An AuditEntry says who did what to a key, when and why. It holds no part of a
// token, and no digest.
type AuditEntry struct {
	ID           string    `json:"id"` // sorts by time
	At           time.Time `json:"at"`
	Act          string    `json:"act"` // issue, rotate, revoke, suspend, resume, rename, edit, import or erase
	Actor        string    `json:"actor"`
	Organization string    `json:"organization"`
	Key          string    `json:"key,omitempty"` // its id; with rotate that of the new key, with erase empty
	Reason       string    `json:"reason,omitempty"`
	Changes      []Change  `json:"changes,omitempty"` // of a new key: all that is set
}

// A Change is a field of a [Key] that an act has changed, such as "expires_at",
// with its text before and after. An erasure counts in "keys" and "entries".
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// An Auditor is a [Manager] that keeps the audit beside the keys. Strings and
// times are kept as those of keys are. [Memory] is one. An [Issuer] over an
// Auditor calls neither Insert nor Update: who wraps one wraps these methods.
type Auditor interface {
	Manager

	// InsertAudited does what Insert does and stores the entry, both or
	// neither. If maxKeys is not zero and the organization has that many keys
	// already, not counting those that have expired or have a RevokedAt, it
	// stores nothing and returns [ErrTooManyKeys]; of any number of concurrent
	// calls no more succeed than there is room for.
	InsertAudited(ctx context.Context, k *Key, e AuditEntry, maxKeys int) error

	// UpdateAudited does what Update does and stores the entry, both or
	// neither.
	UpdateAudited(ctx context.Context, k *Key, e AuditEntry) error

	// Audit returns at most 100 entries of the organization, those with the
	// highest ID first: of the key with this id, or of all if it is empty; and
	// with an ID below after, unless that is empty.
	Audit(ctx context.Context, organization, key, after string) ([]AuditEntry, error)

	// SweepAudit removes the entries from before a time, and returns how many.
	SweepAudit(ctx context.Context, before time.Time) (removed int, err error)

	// Erase removes the keys of the organization and its entries, and returns
	// how many. Afterwards Lookup finds none of the tokens, or finds keys that
	// are revoked and tell nothing of the organization; a Feed names them all.
	Erase(ctx context.Context, organization string) (keys, entries int, err error)
}

// ErrTooManyKeys is returned by an [Auditor]; an [Issuer] returns a
// [*GrantError] in its place.
var ErrTooManyKeys = errors.New("keystore: the organization has as many keys as it may have")

// LogAudit returns a function for [IssuerOptions] that logs each act as one
// line.
func LogAudit(l *slog.Logger) func(context.Context, AuditEntry) {
	return func(ctx context.Context, e AuditEntry) {
		l.InfoContext(ctx, "keystore: audit", "act", e.Act, "actor", e.Actor, "organization", e.Organization,
			"key", e.Key, "reason", e.Reason, "changes", e.Changes, "id", e.ID)
	}
}

// By returns the Issuer for acts of an actor and for a reason, each of at most
// 255 bytes: they are in the audit, and the actor is the CreatedBy of new keys.
//
//	issuer.By("ada", keystore.ReasonLeaked).Revoke(ctx, "acme", id)
func (i *Issuer) By(actor, reason string) *Issuer {
	by := *i
	by.actor, by.reason = actor, reason
	return &by
}

// Audit returns a page of at most 100 entries, the newest first: of a key, or
// of all keys of the organization if key is empty. The next page comes after
// the ID of the last entry. It returns an error that wraps
// [errors.ErrUnsupported] if the store is no [Auditor].
func (i *Issuer) Audit(ctx context.Context, organization, key, after string) ([]AuditEntry, error) {
	if i.auditor == nil {
		return nil, i.noAuditor()
	}
	return i.auditor.Audit(ctx, organization, key, after)
}

// SweepAudit removes the entries of all organizations that are older than keep,
// and returns how many. A program calls it once a day or so.
func (i *Issuer) SweepAudit(ctx context.Context, keep time.Duration) (removed int, err error) {
	if i.auditor == nil {
		return 0, i.noAuditor()
	}
	return i.auditor.SweepAudit(ctx, time.Now().Add(-keep))
}

// Erase removes all keys of an organization and its audit, and returns how many
// of each; only [IssuerOptions.Audit] is told. Its tokens are refused at once,
// and elsewhere as after a revocation. A key that is issued meanwhile may stay:
// erase again.
func (i *Issuer) Erase(ctx context.Context, organization string) (keys, entries int, err error) {
	problems := append(Grant{Organization: organization}.ownerProblems(), i.actProblems()...)
	switch {
	case problems != nil:
		return 0, 0, &GrantError{problems}
	case i.auditor == nil:
		return 0, 0, i.noAuditor()
	}
	keys, entries, err = i.auditor.Erase(ctx, organization)
	if err == nil {
		e := i.entry("erase", &Key{Organization: organization}, &Key{Organization: organization})
		e.Changes = []Change{{"keys", fmt.Sprint(keys), "0"}, {"entries", fmt.Sprint(entries), "0"}}
		i.tell(ctx, e)
	}
	return keys, entries, err
}

func (i *Issuer) noAuditor() error {
	return fmt.Errorf("keystore: %T keeps no audit: %w", i.manager, errors.ErrUnsupported)
}

func (i *Issuer) actProblems() (problems []FieldError) {
	for _, field := range [][2]string{{"actor", i.actor}, {"reason", i.reason}} {
		if problem := textProblem(field[0], field[1]); problem != "" {
			problems = append(problems, FieldError{field[0], problem})
		}
	}
	return problems
}

// write stores the key after, which was before, or is new if that is nil, and
// audits the act.
func (i *Issuer) write(ctx context.Context, act string, before, after *Key, maxKeys int) (err error) {
	e := i.entry(act, before, after)
	switch {
	case i.auditor == nil && before == nil:
		if err = i.room(ctx, after.Organization, maxKeys); err == nil {
			err = i.manager.Insert(ctx, after)
		}
	case i.auditor == nil:
		err = i.manager.Update(ctx, after)
	case before == nil:
		err = i.auditor.InsertAudited(ctx, after, e, maxKeys)
	default:
		err = i.auditor.UpdateAudited(ctx, after, e)
	}
	if err == nil {
		i.tell(ctx, e)
	}
	return err
}

// tell tells of an act that has taken place, even if ctx has ended.
func (i *Issuer) tell(ctx context.Context, e AuditEntry) {
	if i.audit != nil {
		i.audit(context.WithoutCancel(ctx), e)
	}
}

func (i *Issuer) entry(act string, before, after *Key) AuditEntry {
	at := instant()
	return AuditEntry{
		ID: auditID(at) + strings.ToLower(rand.Text()[:8]), At: at, Act: act, Actor: i.actor,
		Organization: after.Organization, Key: after.ID, Reason: i.reason, Changes: changesOf(before, after),
	}
}

// auditID returns what the ids of entries from at on are not below.
func auditID(at time.Time) string { return fmt.Sprintf("act_%014x", at.UnixMicro()) }

// audited are the fields of a key that the audit has, with their texts.
var audited = []struct {
	name string
	text func(*Key) string
}{
	{"name", func(k *Key) string { return k.Name }},
	{"environment", func(k *Key) string { return string(k.Environment) }},
	{"scopes", func(k *Key) string { return joined(k.Scopes) }},
	{"attributes", func(k *Key) string {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(k.Attributes)) {
			texts = append(texts, name+"="+k.Attributes[name])
		}
		return joined(texts)
	}},
	{"networks", func(k *Key) string { return joined(k.Networks) }},
	{"expires_at", func(k *Key) string { return timeText(k.ExpiresAt) }},
	{"revoked_at", func(k *Key) string { return timeText(k.RevokedAt) }},
	{"suspended", func(k *Key) string { return strings.TrimPrefix(fmt.Sprint(k.Suspended), "false") }},
	{"legacy", func(k *Key) string { return k.Legacy }},
	{"rotated_from", func(k *Key) string { return k.RotatedFrom }},
}

// changesOf returns the fields in which after differs from before, which is nil
// for a new key.
func changesOf(before, after *Key) (changes []Change) {
	if before == nil {
		before = new(Key)
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
