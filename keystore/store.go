package keystore

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// The errors that are answers of a store. Any other error means that the store
// could not answer.
var (
	ErrNotFound = errors.New("keystore: no such key")
	ErrExists   = errors.New("keystore: key exists already")
	ErrConflict = errors.New("keystore: key was changed by somebody else")
	ErrRotated  = errors.New("keystore: key was rotated before and has a successor; " +
		"if the secret of that one is lost, issue a new key")
)

// ErrOverloaded is returned by a [Cached] while as many lookups are running as
// may. It does not mean that the token has no key.
var ErrOverloaded = errors.New("keystore: too many lookups are running")

// A Store finds the record of a token. It is all that the path of a request
// needs.
//
// Lookup returns the key with exactly this digest, also when it is revoked,
// expired or suspended: the caller asks [Key.Refused]. It returns an error
// that wraps [ErrNotFound] when there is none, and that is the only error that
// means "this key is invalid"; a store that cannot tell MUST return another
// one. Lookup MUST see every write that returned before it began, so it must
// not read from a replica that lags. The key returned MUST NOT be written to
// afterwards, by the store or by the caller, and its LastUsedAt may be stale.
//
// A Store is safe for concurrent use.
type Store interface {
	Lookup(ctx context.Context, d Digest) (*Key, error)
}

// A Manager is a Store that can also issue, list and change keys. Every method
// takes the organization it acts for, and nothing of another organization is
// ever found or changed. Each method is one atomic step.
//
// Strings are stored byte for byte, scope names that nobody knows included.
// Empty Attributes, Networks and Scopes may come back as nil.
// Times are kept to the microsecond or better and a zero time stays zero.
type Manager interface {
	Store

	// Insert stores a new key, every field of it but Version, which becomes 1.
	// k is neither kept nor changed, and the key that RotatedFrom names need
	// not exist. It stores nothing and returns
	//
	//   - [ErrExists] when the ID or the Digest is taken, or when IssueToken
	//     is not empty and (Organization, CreatedBy, IssueToken) is taken;
	//   - otherwise [ErrRotated] when RotatedFrom is not empty and
	//     (Organization, RotatedFrom) is taken: a key has one successor.
	//
	// Of any number of concurrent calls with one such triple or pair exactly
	// one succeeds.
	Insert(ctx context.Context, k *Key) error

	// Find returns the key with this id, or [ErrNotFound] when the
	// organization has none, also when another organization does.
	Find(ctx context.Context, organization, id string) (*Key, error)

	// FindIssued returns the key that was inserted with this CreatedBy and
	// IssueToken, or [ErrNotFound]. An empty issueToken finds nothing.
	FindIssued(ctx context.Context, organization, actor, issueToken string) (*Key, error)

	// List returns one page of the organization's keys, the newest first:
	// by CreatedAt and then by ID, both descending. It is empty when nothing is
	// left. A key created while pages are read makes no other key appear twice
	// or not at all.
	List(ctx context.Context, organization string, p Page) ([]*Key, error)

	// Update stores Name, Scopes, Attributes, Networks, ExpiresAt, RevokedAt
	// and Suspended of k and leaves every other field, LastUsedAt among them,
	// as it is. It returns [ErrNotFound] when no key has this Organization, ID
	// and Digest, and [ErrConflict] when its Version is not k.Version.
	// Otherwise the stored Version grows by one. k is neither kept nor changed.
	Update(ctx context.Context, k *Key) error
}

// A Page selects keys in [Manager.List]. The zero Page selects the 50 newest.
// A key is listed if all that is asked for holds.
type Page struct {
	After       *Key        // of which the CreatedAt and ID count, and which need not exist; nil: from the newest on
	Limit       int         // zero or less: 50; at most 200
	Environment Environment // empty: both
	Status      Status      // empty: all; judged by the clock of the calling process

	ExpiresBefore time.Time // keys that expire before it; expired ones too, unless Status says Active. Zero: all
	UnusedSince   time.Time // keys that were created before it and not used at it or after. Zero: all
	NeverUsed     bool      // keys that were never used

	RotatedFrom string // the key that replaces the one with this id, if there is one. Empty: all
}

// selects reports whether the page is to list k.
func (p Page) selects(k *Key, now time.Time) bool {
	return (p.Environment == "" || p.Environment == k.Environment) &&
		(p.Status == "" || p.Status == k.Status(now)) &&
		(p.ExpiresBefore.IsZero() || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(p.ExpiresBefore)) &&
		(p.UnusedSince.IsZero() || k.CreatedAt.Before(p.UnusedSince) && k.LastUsedAt.Before(p.UnusedSince)) &&
		(!p.NeverUsed || k.LastUsedAt.IsZero()) &&
		(p.RotatedFrom == "" || p.RotatedFrom == k.RotatedFrom)
}

// Size returns the number of keys a page of p holds at most.
func (p Page) Size() int {
	if p.Limit <= 0 {
		return 50
	}
	return min(p.Limit, 200)
}

// A Toucher is a store that remembers when a key was last used.
//
// Touch sets LastUsedAt of each key to At unless what is stored is later
// already. It MUST NOT change any other field, Version among them: a use that
// is written while somebody revokes the key must not undo that, nor make it
// fail. Uses of keys that do not exist are ignored. A store that is no
// [UsageReader] leaves the fields of a Use after At alone.
type Toucher interface {
	Touch(ctx context.Context, uses []Use) error
}

// A Use says when a key was last used, and how until then on the same day: the
// one of At, in UTC.
type Use struct {
	Organization string
	ID           string
	At           time.Time
	From         netip.Addr   // the client's address at At or up to a second earlier; zero: unknown
	Scopes       []scope.Name // that requests needed
	Requests     int64        // that no other Use counts; zero: the key is not observed
}

// A UsageReader is a [Toucher] that keeps all of a [Use]. Touch also
//
//   - keeps From beside LastUsedAt;
//   - sets ObservedSince to At if it is zero, unless Requests is zero;
//   - sets the last day of each of Scopes to that of At, unless what is stored
//     is later;
//   - adds Requests to those of the day. When it returns an error they may or
//     may not be added.
//
// Usage returns what is kept of a key, or [ErrNotFound] when the organization
// has no such key.
type UsageReader interface {
	Toucher
	Usage(ctx context.Context, organization, id string) (*Usage, error)
}

// Usage is what is known of the use of a key. A scope that is not in Scopes was
// not needed since ObservedSince, as far as all processes record uses. A day is
// its midnight in UTC.
//
// Requests are those that [LastUsed] has recorded; one that was refused later,
// by a limit or for lack of a scope, is among them, and needed no scope.
type Usage struct {
	LastUsedAt    time.Time                `json:"last_used_at,omitzero"`   // zero: never used
	LastUsedFrom  netip.Addr               `json:"last_used_from,omitzero"` // the client's address then; zero: unknown
	ObservedSince time.Time                `json:"observed_since,omitzero"` // of Scopes and Days; zero: they are not kept
	Scopes        map[scope.Name]time.Time `json:"scopes,omitempty"`        // the last day on which a request needed it
	Days          []Day                    `json:"days,omitempty"`          // with requests, of the last 30, newest first
}

// A Day counts the requests of a day.
type Day struct {
	Date     time.Time `json:"date"`
	Requests int64     `json:"requests"`
}

// A Feed is a store that can say which keys are new or were changed, so that
// caches of other processes learn early of a revocation, and of a key that they
// have looked up before it was there.
//
// Changes returns digests of keys that [Manager.Insert] stored or
// [Manager.Update] changed after the position since, and the position after
// them. With an empty since it returns the present position and no digests. It
// may return a part of the digests: everything has been read when it returns
// none, or since itself as the next position. It may name a key more than once,
// and MUST NOT leave out a key whose Insert or Update returned before Changes
// began. A position that the store no longer knows is [ErrNotFound]: the caller
// forgets all it has cached and starts again.
type Feed interface {
	Changes(ctx context.Context, since string) (changed []Digest, next string, err error)
}
