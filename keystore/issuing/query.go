package issuing

import (
	"cmp"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// A Query selects keys in [Store.List]. The zero Query selects the 50 newest.
// A key is listed if all that is asked for holds.
type Query struct {
	After       *keystore.Key        // its CreatedAt and ID count, and it need not exist; nil: from the newest on
	Limit       int                  // zero or less: 50; at most 200
	Environment keystore.Environment // empty: both
	Status      keystore.Status      // empty: all; judged by the clock of the calling process
	OrStatus    keystore.Status      // with Status: keys with this one too

	// Search selects the key with this ID, those with this Hint, and those whose
	// Name holds it. ASCII letters of Hint and Name match in upper and lower
	// case, others as far as the store can. Empty: all.
	Search string

	ExpiresBefore time.Time // keys that expire before it; expired ones too, unless Status says Active. Zero: all
	UnusedSince   time.Time // keys that were created before it and not used at it or after. Zero: all
	NeverUsed     bool      // keys that were never used

	// ScopesUnusedSince selects keys that were observed before this time, and of
	// whose scopes requests since its day in UTC needed some, but not all. A store
	// may look at no more than 1000 keys from After on. Zero: all.
	ScopesUnusedSince time.Time

	CreatedBy string // keys of this actor. Empty: all

	RotatedFrom string // the key that replaces the one with this id, if there is one. Empty: all
	Parent      string // children of the key with this id. Empty: keys without a parent

	// AllOrganizations selects keys of each organization, for those who operate
	// the service. No organization is named then. The order is by Organization,
	// CreatedAt and ID, all descending, and of After all three count. With
	// ExpiresBefore it is by ExpiresAt and ID, ascending, and those two count. With
	// an Order it is that, and a store may sort all keys for each page.
	AllOrganizations bool

	// Order is how the list is sorted: by [Order.At] and ID, ascending, and what
	// these are of After counts. Empty: the newest first.
	Order Order

	Total    bool // count how many are selected
	Children bool // count the live children of those that are listed
}

// An Order says by what a [Query] sorts keys.
type Order string

// The longest unused come first: a key that is used while somebody reads page
// after page moves to a later one, and none is skipped.
const (
	ByLastUse Order = "used"   // those that were never used come first
	ByExpiry  Order = "expiry" // by ExpiresAt or RevokedAt, whichever is earlier; those with neither come last
)

// At returns the time of k by which the order sorts, to the microsecond: the
// zero time if k was never used, and the last one of the year 9999 if it neither
// expires nor is revoked.
func (o Order) At(k *keystore.Key) (at time.Time) {
	switch o {
	case ByLastUse:
		at = k.LastUsedAt
	case ByExpiry:
		at = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		for _, end := range []time.Time{k.ExpiresAt, k.RevokedAt} {
			if !end.IsZero() && end.Before(at) {
				at = end
			}
		}
	default:
		at = k.CreatedAt
	}
	return at.Truncate(time.Microsecond)
}

// A Listing is what a [Query] has selected.
type Listing struct {
	Keys []*keystore.Key

	// Total is how many keys are selected from Query.After on, whatever the
	// Limit, if Query.Total asks for it.
	Total int

	// Children has how many live children the Keys have, by their ID, if
	// Query.Children asks for it. Those without any are left out.
	Children map[string]int
}

// compare is the order of the list.
func (q Query) compare(a, b *keystore.Key) int {
	switch {
	case q.Order == ByLastUse || q.Order == ByExpiry:
		return cmp.Or(q.Order.At(a).Compare(q.Order.At(b)), cmp.Compare(a.ID, b.ID))
	case q.AllOrganizations && !q.ExpiresBefore.IsZero():
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	}
	newest := cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	if q.AllOrganizations {
		return cmp.Or(cmp.Compare(b.Organization, a.Organization), newest)
	}
	return newest
}

// selects reports whether k is to be listed.
func (q Query) selects(k *keystore.Key, now time.Time) bool {
	return (q.Environment == "" || q.Environment == k.Environment) &&
		(q.Status == "" || q.Status == k.Status(now) || q.OrStatus == k.Status(now)) &&
		(q.Search == "" || q.Search == k.ID || strings.EqualFold(q.Search, k.Hint) ||
			strings.Contains(strings.ToLower(k.Name), strings.ToLower(q.Search))) &&
		(q.ExpiresBefore.IsZero() || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(q.ExpiresBefore)) &&
		(q.UnusedSince.IsZero() || k.CreatedAt.Before(q.UnusedSince) && k.LastUsedAt.Before(q.UnusedSince)) &&
		(!q.NeverUsed || k.LastUsedAt.IsZero()) && (q.CreatedBy == "" || q.CreatedBy == k.CreatedBy) &&
		(q.RotatedFrom == "" || q.RotatedFrom == k.RotatedFrom) && q.Parent == k.Parent
}
