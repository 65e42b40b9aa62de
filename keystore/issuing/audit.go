package issuing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// An AuditEntry says who did what to a key, when and why. It holds no part of a
// token, and no digest.
type AuditEntry struct {
	ID           string    `json:"id"` // sorts by time
	At           time.Time `json:"at"`
	Act          string    `json:"act"` // issue, delegate, rotate, revoke, suspend, resume, rename, edit, import or erase
	Actor        string    `json:"actor"`
	Organization string    `json:"organization"`
	Key          string    `json:"key,omitempty"` // its id; with rotate that of the new key, with erase empty
	Reason       string    `json:"reason,omitempty"`
	Changes      []Change  `json:"changes,omitempty"` // of a new key: all that is set
}

// A Change is a field of a [keystore.Key] that an act has changed, such as
// "expires_at", with its text before and after. An erasure counts in "keys" and
// "entries".
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// An Auditor is a [Manager] that keeps the audit beside the keys. Strings and
// times are kept as those of keys are. An [Issuer] over an Auditor calls neither
// Insert nor Update: who wraps one wraps these methods.
type Auditor interface {
	Manager

	// InsertAudited does what Insert does and stores the entry, both or
	// neither. If maxKeys is not zero and there are that many keys already, it
	// stores nothing and returns [ErrTooManyKeys]; of any number of concurrent
	// calls no more succeed than there is room for. If k has no parent, the
	// keys that count are those of the organization without a parent; otherwise
	// all keys below k's furthest ancestor. Those that have expired or have a
	// RevokedAt do not count. A child has an ExpiresAt.
	InsertAudited(ctx context.Context, k *keystore.Key, e AuditEntry, maxKeys int) error

	// UpdateAudited does what Update does and stores the entry, both or
	// neither.
	UpdateAudited(ctx context.Context, k *keystore.Key, e AuditEntry) error

	// Audit returns at most 100 entries of the organization, those with the
	// highest ID first: of the key with this id, or of all if it is empty; and
	// with an ID below after, unless that is empty.
	Audit(ctx context.Context, organization, key, after string) ([]AuditEntry, error)

	// SweepAudit removes the entries from before a time, and returns how many.
	// It also removes the children that expired or were revoked more than a day
	// ago: until then FindIssued finds them. What is below them is refused.
	SweepAudit(ctx context.Context, before time.Time) (removed int, err error)

	// Erase removes the keys of the organization and its entries, and returns
	// how many. Afterwards Lookup finds none of the tokens, or finds keys that
	// are revoked and tell nothing of the organization; a Feed names them all, and
	// InsertAudited stores their digests again.
	Erase(ctx context.Context, organization string) (keys, entries int, err error)
}

// ErrTooManyKeys is returned by an [Auditor]; an [Issuer] returns a
// [*keystore.FieldsError] in its place.
var ErrTooManyKeys = errors.New("issuing: the organization has as many keys as it may have")

// LogAudit returns a function for [Options] that logs each act as one
// line, with the changes as JSON. Nil means slog.Default().
func LogAudit(l *slog.Logger) func(context.Context, AuditEntry) {
	return func(ctx context.Context, e AuditEntry) {
		cmp.Or(l, slog.Default()).InfoContext(ctx, "issuing: audit", "act", e.Act, "actor", e.Actor,
			"organization", e.Organization, "key", e.Key, "reason", e.Reason, "changes", logged(e.Changes), "id", e.ID)
	}
}

// logged changes are JSON in a line of the log, whatever its handler.
type logged []Change

func (c logged) MarshalJSON() ([]byte, error) { return json.Marshal([]Change(c)) }
func (c logged) MarshalText() ([]byte, error) { return c.MarshalJSON() }

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
