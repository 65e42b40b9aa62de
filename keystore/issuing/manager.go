package issuing

import (
	"context"
	"errors"

	"github.com/sallyport-go/sallyport/keystore"
)

// The errors that are answers of a store, beside [keystore.ErrNotFound].
var (
	ErrExists   = errors.New("issuing: key exists already")
	ErrConflict = errors.New("issuing: key was changed by somebody else")
	ErrRotated  = errors.New("issuing: key was rotated before and has a successor; " +
		"if the secret of that one is lost, issue a new key")
)

// A Manager is a Store that can also issue, list and change keys. Every method
// takes the organization it acts for, and nothing of another organization is
// ever found or changed. Each method is one atomic step.
//
// Lookup, Find and FindIssued return a child with its Ancestors: its Parent, the
// Parent of that and so on, as far as the organization has them and 3 at most.
// Other keys, and the Ancestors, have none.
//
// Strings are stored byte for byte, scope names that nobody knows included.
// Empty Attributes, Networks and Scopes may come back as nil.
// Times are kept to the microsecond or better and a zero time stays zero.
type Manager interface {
	keystore.Store

	// Insert stores a new key, every field of it but Ancestors, and Version,
	// which becomes 1. k is neither kept nor changed, and the key that
	// RotatedFrom names need not exist. A key with a Parent has no RotatedFrom,
	// and has its Ancestors, so that a store can note the last of them.
	// It stores nothing and returns
	//
	//   - [ErrExists] when the ID or the Digest is taken, or when IssueToken
	//     is not empty and (Organization, CreatedBy, IssueToken) is taken;
	//   - otherwise [ErrRotated] when RotatedFrom is not empty and
	//     (Organization, RotatedFrom) is taken: a key has one successor.
	//
	// Of any number of concurrent calls with one such triple or pair exactly
	// one succeeds.
	Insert(ctx context.Context, k *keystore.Key) error

	// Find returns the key with this id, or [keystore.ErrNotFound] when the
	// organization has none, also when another organization does.
	Find(ctx context.Context, organization, id string) (*keystore.Key, error)

	// FindIssued returns the key that was inserted with this CreatedBy and
	// IssueToken, or [keystore.ErrNotFound]. An empty issueToken finds nothing.
	FindIssued(ctx context.Context, organization, actor, issueToken string) (*keystore.Key, error)

	// List returns one page of the organization's keys, those without a parent
	// or the children of one, without their Ancestors, the newest first:
	// by CreatedAt and then by ID, both descending. It is empty when nothing is
	// left. A key created while pages are read makes no other key appear twice
	// or not at all. The organization is empty with [Page.AllOrganizations].
	//
	// A store may leave out Search, OrStatus, ScopesUnusedSince and
	// AllOrganizations. It then leaves Total alone, and an [Issuer] asks for none
	// of these. Package console needs a store that sets Total.
	List(ctx context.Context, organization string, p Page) ([]*keystore.Key, error)

	// Update stores Name, Scopes, Attributes, Networks, ExpiresAt, RevokedAt
	// and Suspended of k and leaves every other field, LastUsedAt among them,
	// as it is. It returns [keystore.ErrNotFound] when no key has this
	// Organization, ID and Digest, and [ErrConflict] when its Version is not
	// k.Version. Otherwise the stored Version grows by one. k is neither kept
	// nor changed.
	Update(ctx context.Context, k *keystore.Key) error
}
