package keystore

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// ErrNotFound is the answer of a store that has no such key. Any other error
// means that the store could not answer.
var ErrNotFound = errors.New("keystore: no such key")

// ErrOverloaded is returned by a [Cached] while as many lookups are running as
// may. It does not mean that the token has no key.
var ErrOverloaded = errors.New("keystore: too many lookups are running")

// A Store finds the record of a token. It is all that the path of a request
// needs.
//
// Lookup returns the key with exactly this digest, also when it is revoked,
// expired or suspended: the caller asks [Key.Refused]. It returns an error that
// wraps [ErrNotFound] when there is none, the only error that means "this key is
// invalid"; a store that cannot tell MUST return another one. Lookup MUST see
// every write that returned before it began, so it must not read from a replica
// that lags. The key MUST NOT be written to afterwards, by the store or by the
// caller, and its LastUsedAt may be stale.
//
// A Store is safe for concurrent use.
type Store interface {
	Lookup(ctx context.Context, d Digest) (*Key, error)
}

// A useStore keeps when keys were used, see AddUses of an issuing.Store.
type useStore interface {
	AddUses(ctx context.Context, uses []Use) error
}

// A feed says which keys are new or were changed, see Changes of an
// issuing.Store.
type feed interface {
	Changes(ctx context.Context, since string) (changed []Digest, next string, err error)
}

// A Use says when a key was last used, and how up to then on the day of At, in
// UTC.
type Use struct {
	Organization string
	ID           string
	At           time.Time    // zero: the key was not used, only Refused
	From         netip.Addr   // the client's address at At or up to a second earlier; zero: unknown
	Scopes       []scope.Name // that requests needed
	Requests     int64        // of this process since its Use before; zero: AddUses leaves ObservedSince as it is
	Refused      Refusal      // of a request with the key; zero: none
}

// A Refusal says how a request with a key was refused.
type Refusal struct {
	At    time.Time `json:"at"`
	Code  string    `json:"code"`  // one of a few, such as insufficient_scope
	Route string    `json:"route"` // the pattern, never the path; "" if it is not known
}
