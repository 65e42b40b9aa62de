package keystore

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// The reasons for which a key that exists is refused.
var (
	ErrRevoked   = errors.New("keystore: key is revoked")
	ErrExpired   = errors.New("keystore: key has expired")
	ErrSuspended = errors.New("keystore: key is suspended")
)

// ErrCorrupt is wrapped when a store returned neither a record nor an error, or a
// record that cannot belong to the token: of another digest, of an environment
// that does not exist, without ID or organization. Nobody may be let in with it.
var ErrCorrupt = errors.New("keystore: record is corrupt")

// A Key is the record of one API key. It never holds the secret. Its JSON, in
// which times that are zero are left out, has no digest either.
//
// A child, a key with a Parent, may do no more than that, see [Key.Bind], and
// is refused with it. It has at most 3 Ancestors.
//
// Nobody may write to a *Key that came out of Lookup, which may be shared. One that
// an issuer returns belongs to the caller, who may change it for its Edit.
type Key struct {
	ID           string            `json:"id"` // required, public; "key_" and an xid when package issuing made it
	Digest       Digest            `json:"-"`
	Organization string            `json:"organization"`         // required
	Environment  Environment       `json:"environment"`          // required
	Name         string            `json:"name"`                 // what people call it; may be empty
	Hint         string            `json:"hint"`                 // the last characters of the secret, usually four
	Scopes       []scope.Name      `json:"scopes"`               // as given; unknown ones grant nothing
	Attributes   map[string]string `json:"attributes,omitempty"` // what a service wants to know, such as a plan
	Networks     []netip.Prefix    `json:"networks,omitempty"`   // none: used from anywhere
	Legacy       string            `json:"legacy,omitempty"`     // Name of a [LegacyFormat]; empty: the present format
	CreatedAt    time.Time         `json:"created_at,omitzero"`
	CreatedBy    string            `json:"created_by"`             // who issued it; the key outlives that account
	ExpiresAt    time.Time         `json:"expires_at,omitzero"`    // zero: never. At this instant the key is refused
	RevokedAt    time.Time         `json:"revoked_at,omitzero"`    // zero: not revoked. After a rotation it may lie ahead
	Suspended    bool              `json:"suspended,omitempty"`    // refused while true; can be taken back
	LastUsedAt   time.Time         `json:"last_used_at,omitzero"`  // zero: never. Only AddUses changes it
	IssueToken   string            `json:"issue_token,omitempty"`  // unique within (Organization, CreatedBy) unless empty
	RotatedFrom  string            `json:"rotated_from,omitempty"` // id of the key it replaces, or empty
	Parent       string            `json:"parent,omitempty"`       // id of the key whose child it is, or empty
	Ancestors    []*Key            `json:"-"`                      // of a child: its Parent, the Parent of that, …
	Version      int64             `json:"version"`                // 1 after Insert, and one more after each Update
}

// A Status says whether a key is usable and, if not, why.
type Status string

// The statuses, from the one that is reported first to the one that is
// reported last when several hold.
const (
	Revoked   Status = "revoked"
	Expired   Status = "expired"
	Suspended Status = "suspended"
	Active    Status = "active"
)

// Status returns the status of the key at the time now, by the wall clock,
// whatever that of its Ancestors.
func (k *Key) Status(now time.Time) Status {
	now = now.Round(0) // without the monotonic reading, which would be compared
	switch {
	case !k.RevokedAt.IsZero() && !now.Before(k.RevokedAt):
		return Revoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Expired
	case k.Suspended:
		return Suspended
	}
	return Active
}

// Refused returns nil when the key may be used now, by the wall clock, and
// otherwise [ErrRevoked], [ErrExpired] or [ErrSuspended]. A child is refused when
// one of its Ancestors is, or is missing. A key can expire while it is cached:
// call it for every request.
func (k *Key) Refused() error {
	if k.orphaned() {
		return ErrRevoked
	}
	for _, a := range k.Ancestors {
		if err := a.refused(); err != nil {
			return err
		}
	}
	return k.refused()
}

// refused is Refused without the ancestors.
func (k *Key) refused() error {
	if !k.ends() { // reading the clock costs as much as the rest of a lookup
		return nil
	}
	switch k.Status(time.Now()) {
	case Revoked:
		return ErrRevoked
	case Expired:
		return ErrExpired
	case Suspended:
		return ErrSuspended
	}
	return nil
}

// ends reports whether the key may be refused, now or ever.
func (k *Key) ends() bool { return !k.ExpiresAt.IsZero() || !k.RevokedAt.IsZero() || k.Suspended }

// orphaned reports whether the ancestors do not lead from the key to one without
// a parent, all of one organization and environment, and with the digests by
// which a Cached learns of their changes.
func (k *Key) orphaned() bool {
	child := k
	for _, a := range k.Ancestors {
		if child.Parent == "" || a == nil || a.ID != child.Parent || a.Digest == (Digest{}) ||
			a.Organization != k.Organization || a.Environment != k.Environment {
			return true
		}
		child = a
	}
	return child.Parent != ""
}

// fits returns an error unless k, which came from a store, can be the key of
// the digest. It fails closed: a mixed-up row must not let one organization act
// as another.
func (k *Key) fits(d Digest) error {
	switch {
	case k == nil:
		return fmt.Errorf("%w: the store returned neither a key nor an error", ErrCorrupt)
	case k.Digest != d:
		return fmt.Errorf("%w: key %q came for the digest of another one", ErrCorrupt, k.ID)
	case !k.Environment.Known():
		return fmt.Errorf("%w: key %q is of environment %q", ErrCorrupt, k.ID, k.Environment)
	case (k.ID == "" || k.Organization == "") && k.Status(time.Now()) != Revoked: // unlike what an erasure has left
		return fmt.Errorf("%w: key %q of organization %q lacks one of the two", ErrCorrupt, k.ID, k.Organization)
	case k.orphaned(): // such as by an erasure
		return fmt.Errorf("%w: a parent of key %q is missing", ErrNotFound, k.ID)
	}
	return nil
}

// Clone returns a copy that shares nothing with k, so that its fields can be
// changed.
func (k *Key) Clone() *Key {
	c := *k
	c.Scopes = slices.Clone(k.Scopes)
	c.Attributes = maps.Clone(k.Attributes)
	c.Networks = slices.Clone(k.Networks)
	c.Ancestors = slices.Clone(k.Ancestors)
	for i, a := range c.Ancestors {
		if a != nil {
			c.Ancestors[i] = a.Clone()
		}
	}
	return &c
}
