package issuing

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// The errors that are answers of a store, beside [keystore.ErrNotFound]. In
// place of ErrTooManyKeys an [Issuer] returns a [*keystore.FieldsError].
var (
	ErrExists   = errors.New("issuing: key exists already")
	ErrConflict = errors.New("issuing: key was changed by somebody else")
	ErrRotated  = errors.New("issuing: key was rotated before and has a successor; " +
		"if the secret of that one is lost, issue a new key")
	ErrTooManyKeys = errors.New("issuing: the organization has as many keys as it may have")
)

// A Store keeps keys, their audit and their use, and tells the caches of other
// processes what has changed. Those of [NewMemory] and of package keysql do, and
// package keystoretest checks one of your own.
//
// Every method takes the organization it acts for, and nothing of another
// organization is ever found or changed. Each method is one atomic step.
//
// Lookup, Find and FindIssued return a child with its Ancestors: its Parent, the
// Parent of that and so on, as far as the organization has them and 3 at most.
// Other keys, and the Ancestors, have none.
//
// Strings are stored byte for byte. Empty Attributes, Networks and Scopes may
// come back as nil. Times are kept to the microsecond or better, zero as zero.
type Store interface {
	keystore.Store

	// Changes returns digests of keys that were stored or changed after the
	// position since, and the position after them, for the caches of other
	// processes. With an empty since it returns the present position and no
	// digests. It may return a part of them: everything has been read when it
	// returns none, or since itself as the next position. It may name a key more
	// than once, and MUST NOT leave out a key whose change returned before Changes
	// began. A position that the store no longer knows is [keystore.ErrNotFound]:
	// the caller forgets all it has cached and starts again.
	Changes(ctx context.Context, since string) (changed []keystore.Digest, next string, err error)

	// AddUses sets LastUsedAt of each key to At, and keeps From beside it,
	// unless At is zero or what is stored is later already. It also
	//
	//   - sets ObservedSince to At if it is zero, unless Requests is zero;
	//   - sets the last day of each of Scopes to that of At, unless what is
	//     stored is later;
	//   - adds Requests to those of the day. When it returns an error they may
	//     or may not be added;
	//   - keeps Refused in place of the one with its Code. Of those of a key in
	//     one call it may keep any one.
	//
	// It MUST NOT change any other field of a key, Version among them: a use
	// that is written while somebody revokes the key must not undo that, nor
	// make it fail. A key may have several uses in one call. Uses of keys that
	// do not exist are ignored.
	AddUses(ctx context.Context, uses []keystore.Use) error

	// Insert stores a new key and the entry of the audit about it, both or
	// neither: every field of the key but Ancestors, and Version, which becomes
	// 1. k is neither kept nor changed, and the key that RotatedFrom names need
	// not exist. A key with a Parent has no RotatedFrom, an ExpiresAt, and its
	// Ancestors, of which a store can note the last. It stores nothing and returns
	//
	//   - [ErrTooManyKeys] when maxKeys is not zero and there are that many keys
	//     already;
	//   - [ErrExists] when the ID or the Digest is taken, or when IssueToken
	//     is not empty and (Organization, CreatedBy, IssueToken) is taken;
	//   - otherwise [ErrRotated] when RotatedFrom is not empty and
	//     (Organization, RotatedFrom) is taken: a key has one successor.
	//
	// Of any number of concurrent calls no more succeed than there is room for,
	// and with one such triple or pair exactly one.
	//
	// If k has no parent, the keys that count are those of the organization
	// without a parent; otherwise all keys below k's furthest ancestor. Those
	// that have expired or have a RevokedAt do not count.
	Insert(ctx context.Context, k *keystore.Key, e AuditEntry, maxKeys int) error

	// Update stores Name, Scopes, Attributes, Networks, ExpiresAt, RevokedAt
	// and Suspended of k, and the entry, both or neither. It leaves every other
	// field, LastUsedAt among them, as it is. It returns [keystore.ErrNotFound]
	// when no key has this Organization, ID and Digest, and [ErrConflict] when
	// its Version is not k.Version. Otherwise the stored Version grows by one. k
	// is neither kept nor changed.
	Update(ctx context.Context, k *keystore.Key, e AuditEntry) error

	// Find returns the key with this id, or [keystore.ErrNotFound] when the
	// organization has none, also when another organization does.
	Find(ctx context.Context, organization, id string) (*keystore.Key, error)

	// FindIssued returns the key that was inserted with this CreatedBy and
	// IssueToken, or [keystore.ErrNotFound]. An empty issueToken finds nothing.
	FindIssued(ctx context.Context, organization, actor, issueToken string) (*keystore.Key, error)

	// List returns one page of the organization's keys, those without a parent
	// or the children of one, without their Ancestors, the newest first:
	// by CreatedAt and then by ID, both descending; or by [Query.Order]. It is empty when
	// nothing is left. A key created while pages are read makes no other key appear twice
	// or not at all. The organization is empty with [Query.AllOrganizations].
	List(ctx context.Context, organization string, q Query) (Listing, error)

	// Usage returns what is kept of the use of a key, or [keystore.ErrNotFound]
	// when the organization has no such key.
	Usage(ctx context.Context, organization, id string) (*Usage, error)

	// Audit returns one page of the entries of the organization, those with the
	// highest ID first, each with the KeyName and KeyHint of its key, if the
	// organization has that. The organization is empty with
	// [AuditQuery.AllOrganizations]. An ID sorts by its time: see [AuditQuery.Bounds].
	Audit(ctx context.Context, organization string, q AuditQuery) ([]AuditEntry, error)

	// SweepAudit removes the entries from before a time, and returns how many.
	// It also removes the children that expired or were revoked more than a day
	// ago: until then FindIssued finds them. What is below them is refused.
	SweepAudit(ctx context.Context, before time.Time) (removed int, err error)

	// Erase removes the keys of the organization and its entries, but those with
	// the Act erase, and returns how many. Unless there were none, it stores what
	// entry makes of these numbers, both or neither; entry may be called again.
	// Afterwards Lookup finds none of the tokens, or finds keys that are revoked
	// and tell nothing of the organization; Changes names them all, and Insert
	// stores their digests again.
	Erase(ctx context.Context, organization string, entry func(keys, entries int) AuditEntry) (
		keys, entries int, err error)
}
