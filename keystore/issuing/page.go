package issuing

import (
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// A Page selects keys in [Manager.List]. The zero Page selects the 50 newest.
// A key is listed if all that is asked for holds.
type Page struct {
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

	// ScopesUnusedSince selects keys that were observed before this time
	// already, and of whose scopes requests since its day in UTC needed some,
	// but not all. It is for a [UsageReader], which may look at no more than
	// 1000 keys from After on, and leave out the others. Zero: all.
	ScopesUnusedSince time.Time

	RotatedFrom string // the key that replaces the one with this id, if there is one. Empty: all
	Parent      string // children of the key with this id. Empty: keys without a parent

	// AllOrganizations selects keys of each organization, for those who operate
	// the service. No organization is named then. The order is by Organization,
	// CreatedAt and ID, all descending, and of After all three count. With
	// ExpiresBefore it is by ExpiresAt and ID, ascending, and those two count.
	AllOrganizations bool

	// Total, if it is not nil, is set to how many keys are selected from After
	// on, whatever the Limit.
	Total *int

	// Children, if it is not nil, is a map, which gets how many live children the
	// keys that are listed have, by their ID. Those without any are left out, and
	// all where the store does not count them.
	Children *map[string]int
}

// extended reports whether the page asks for what not every [Manager] knows.
func (p Page) extended() bool {
	return p.OrStatus != "" || p.Search != "" || !p.ScopesUnusedSince.IsZero() || p.AllOrganizations
}

// byExpiry reports whether what expires first comes first.
func (p Page) byExpiry() bool { return p.AllOrganizations && !p.ExpiresBefore.IsZero() }

// selects reports whether the page is to list k.
func (p Page) selects(k *keystore.Key, now time.Time) bool {
	return (p.Environment == "" || p.Environment == k.Environment) &&
		(p.Status == "" || p.Status == k.Status(now) || p.OrStatus == k.Status(now)) &&
		(p.Search == "" || p.Search == k.ID || strings.EqualFold(p.Search, k.Hint) ||
			strings.Contains(strings.ToLower(k.Name), strings.ToLower(p.Search))) &&
		(p.ExpiresBefore.IsZero() || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(p.ExpiresBefore)) &&
		(p.UnusedSince.IsZero() || k.CreatedAt.Before(p.UnusedSince) && k.LastUsedAt.Before(p.UnusedSince)) &&
		(!p.NeverUsed || k.LastUsedAt.IsZero()) &&
		(p.RotatedFrom == "" || p.RotatedFrom == k.RotatedFrom) && p.Parent == k.Parent
}

// Size returns the number of keys a page of p holds at most.
func (p Page) Size() int {
	if p.Limit <= 0 {
		return 50
	}
	return min(p.Limit, 200)
}
