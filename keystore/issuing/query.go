package issuing

import (
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

	RotatedFrom string // the key that replaces the one with this id, if there is one. Empty: all
	Parent      string // children of the key with this id. Empty: keys without a parent

	// AllOrganizations selects keys of each organization, for those who operate
	// the service. No organization is named then. The order is by Organization,
	// CreatedAt and ID, all descending, and of After all three count. With
	// ExpiresBefore it is by ExpiresAt and ID, ascending, and those two count.
	AllOrganizations bool

	Total    bool // count how many are selected
	Children bool // count the live children of those that are listed
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

// byExpiry reports whether what expires first comes first.
func (q Query) byExpiry() bool { return q.AllOrganizations && !q.ExpiresBefore.IsZero() }

// selects reports whether k is to be listed.
func (q Query) selects(k *keystore.Key, now time.Time) bool {
	return (q.Environment == "" || q.Environment == k.Environment) &&
		(q.Status == "" || q.Status == k.Status(now) || q.OrStatus == k.Status(now)) &&
		(q.Search == "" || q.Search == k.ID || strings.EqualFold(q.Search, k.Hint) ||
			strings.Contains(strings.ToLower(k.Name), strings.ToLower(q.Search))) &&
		(q.ExpiresBefore.IsZero() || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(q.ExpiresBefore)) &&
		(q.UnusedSince.IsZero() || k.CreatedAt.Before(q.UnusedSince) && k.LastUsedAt.Before(q.UnusedSince)) &&
		(!q.NeverUsed || k.LastUsedAt.IsZero()) &&
		(q.RotatedFrom == "" || q.RotatedFrom == k.RotatedFrom) && q.Parent == k.Parent
}
