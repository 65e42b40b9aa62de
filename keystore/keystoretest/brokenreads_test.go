package keystoretest_test

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// brokenReads break what Lookup, Insert, Find and List promise.
var brokenReads = []defect{
	{"says unknown with an error of its own", []string{"Lookup/Unknown"},
		looking(func(_ *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			if err != nil {
				err = errors.New("no rows in result set")
			}
			return k, err
		})},
	{"has no column for the hint", []string{"Lookup/Record", "Find/Record", "FindIssued/Record", "List/Order"},
		edited(func(k *keystore.Key) { k.Hint = "" })},
	{"compares 30 bytes of the digest", []string{"Lookup/WholeDigest"}, func(b *broken) {
		edited(func(k *keystore.Key) { k.Digest[30], k.Digest[31] = 0, 0 })(b)
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			d[30], d[31] = 0, 0
			return b.Store.Lookup(ctx, d)
		}
	}},
	{"reads into one row for all callers", []string{"Lookup/AtOnce"}, func(b *broken) {
		var row atomic.Pointer[keystore.Key]
		looking(func(_ *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			row.Store(k)
			runtime.Gosched()
			return row.Load().Clone(), err
		})(b)
	}},
	{"hides keys that are refused", []string{"Lookup/Refused"},
		looking(func(_ *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			if err == nil && k.Refused() != nil {
				return nil, keystore.ErrNotFound
			}
			return k, err
		})},
	{"writes the version into the caller's key", []string{"Insert/Version", "Update/Fields"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			k.Version = 1
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			err := b.Store.Update(ctx, k, e)
			k.Version++
			return err
		}
	}},
	{"keeps the caller's key", []string{"Insert/KeepsNothing", "Update/KeepsNothing"}, func(b *broken) {
		kept := make(map[keystore.Digest]*keystore.Key)
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			kept[k.Digest] = k
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
		b.lookup = func(_ context.Context, d keystore.Digest) (*keystore.Key, error) { return kept[d], nil }
	}},
	{"ignores duplicates", []string{
		"Insert/ExistingID", "Insert/ExistingDigest", "Insert/ExistingIssueToken", "Insert/IssueTokenRace",
		"Insert/DigestRace",
	}, ignoring(issuing.ErrExists)},
	{"makes issue tokens unique in the organization", []string{"Insert/OtherIssueTokens"},
		unique(issuing.ErrExists, func(k *keystore.Key) string { return k.Organization + " " + k.IssueToken })},
	{"lets a key have two successors", []string{"Insert/SecondSuccessor", "Insert/SuccessorRace"},
		ignoring(issuing.ErrRotated)},
	{"looks at the successor first", []string{"Insert/SecondSuccessor"},
		unique(issuing.ErrRotated, func(k *keystore.Key) string { return k.Organization + " " + k.RotatedFrom })},
	{"makes predecessors unique among all organizations", []string{"Insert/OtherSuccessors"},
		unique(issuing.ErrRotated, func(k *keystore.Key) string { return k.RotatedFrom })},
	{"keeps milliseconds", []string{"Insert/Times"},
		edited(func(k *keystore.Key) { k.CreatedAt = k.CreatedAt.Truncate(time.Millisecond) })},
	{"keeps no zero time", []string{"Insert/Times", "List/Status"}, edited(func(k *keystore.Key) {
		if k.ExpiresAt.IsZero() {
			k.ExpiresAt = time.Unix(0, 0)
		}
	})},
	{"trims text", []string{"Text/Fields"}, edited(func(k *keystore.Key) { k.Name = strings.TrimSpace(k.Name) })},
	{"compares organizations without regard to case", []string{"Text/Distinct"}, func(b *broken) {
		edited(func(k *keystore.Key) { k.Organization = strings.ToLower(k.Organization) })(b)
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			return b.Store.List(ctx, strings.ToLower(organization), q)
		}
	}},
	{"refuses ids that differ in case", []string{"Text/Distinct"},
		unlikeOthers(func(k *keystore.Key) string { return k.ID })},
	{"refuses creators that differ in case", []string{"Text/Distinct"},
		unlikeOthers(func(k *keystore.Key) string { return k.IssueToken + " " + k.CreatedBy })},
	{"refuses predecessors that differ in case", []string{"Text/Distinct"},
		unlikeOthers(func(k *keystore.Key) string { return k.RotatedFrom })},
	{"has no column for the mark of a legacy key", []string{"Lookup/Record", "Find/Record"},
		edited(func(k *keystore.Key) { k.Legacy = "" })},
	{"has no column for attributes", []string{"Lookup/Record", "Text/Attributes"},
		edited(func(k *keystore.Key) { k.Attributes = nil })},
	{"folds the names of attributes", []string{"Text/Attributes"}, edited(func(k *keystore.Key) {
		folded := make(map[string]string)
		for name, value := range k.Attributes {
			folded[strings.ToLower(name)] = value
		}
		k.Attributes = folded
	})},
	{"has no column for networks", []string{"Lookup/Record", "Insert/Networks"},
		edited(func(k *keystore.Key) { k.Networks = nil })},
	{"sorts networks", []string{"Insert/Networks"}, edited(func(k *keystore.Key) {
		slices.SortFunc(k.Networks, func(x, y netip.Prefix) int { return strings.Compare(x.String(), y.String()) })
	})},
	{"drops unknown scopes", []string{"Text/UnknownScopes"}, edited(func(k *keystore.Key) {
		k.Scopes = slices.DeleteFunc(k.Scopes, func(n scope.Name) bool { return !scope.Default().Known(n) })
	})},
	{"joins scopes with commas", []string{"Text/UnknownScopes"}, edited(func(k *keystore.Key) {
		var joined []string
		for _, n := range k.Scopes {
			joined = append(joined, strings.Split(string(n), ",")...)
		}
		k.Scopes = nil
		for _, n := range joined {
			k.Scopes = append(k.Scopes, scope.Name(n))
		}
	})},
	{"finds by id alone", []string{"Find/OtherOrganization"}, func(b *broken) {
		b.find = func(ctx context.Context, _, id string) (*keystore.Key, error) {
			return b.Store.Find(ctx, b.anywhere(id).Organization, id)
		}
	}},
	{"finds nothing that was issued", []string{"FindIssued/Record"}, func(b *broken) {
		b.findIssued = func(context.Context, string, string, string) (*keystore.Key, error) {
			return nil, keystore.ErrNotFound
		}
	}},
	{"takes an empty issue token for one", []string{"FindIssued/Others"}, func(b *broken) {
		b.findIssued = func(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
			if page, err := b.Store.List(ctx, organization, issuing.Query{}); token == "" && err == nil {
				return page.Keys[0], nil
			}
			return b.Store.FindIssued(ctx, organization, actor, token)
		}
	}},
	{"hands out what Lookup shares", []string{"Find/Owned"}, func(b *broken) {
		b.find = func(ctx context.Context, _, id string) (*keystore.Key, error) {
			return b.Store.Lookup(ctx, b.anywhere(id).Digest)
		}
	}},
	{"lists the oldest first", []string{"List/Order"}, listing(func(q issuing.Query, page *issuing.Listing) {
		slices.Reverse(page.Keys)
	})},
	{"continues after a time, without the id", []string{"List/Pages"}, asking(func(q *issuing.Query) {
		if q.After != nil {
			q.After = &keystore.Key{CreatedAt: q.After.CreatedAt}
		}
	})},
	{"has a default of its own for pages", []string{"List/Limits"},
		asking(func(q *issuing.Query) { q.Limit = cmp.Or(max(q.Limit, 0), 20) })},
	{"lists for whoever's cursor it is", []string{"List/Isolation"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			if q.After != nil {
				organization = cmp.Or(b.anywhere(q.After.ID).Organization, organization)
			}
			return b.Store.List(ctx, organization, q)
		}
	}},
	{"filters a page after cutting it", []string{"List/Environment"},
		leaving(func(q *issuing.Query) { q.Environment = "" }, func(q issuing.Query, k *keystore.Key) bool {
			return q.Environment != "" && k.Environment != q.Environment
		})},
	{"calls a key revoked that will be", []string{"List/Status"},
		leaving(func(*issuing.Query) {}, func(q issuing.Query, k *keystore.Key) bool {
			return q.Status == keystore.Active && !k.RevokedAt.IsZero()
		})},
	{"does not ask when keys expire", []string{"List/Expiring"},
		asking(func(q *issuing.Query) { q.ExpiresBefore = time.Time{} })},
	{"takes a new key for an unused one", []string{"List/Unused"}, leaving(
		func(q *issuing.Query) { q.UnusedSince, q.Limit = time.Time{}, 200 },
		func(q issuing.Query, k *keystore.Key) bool {
			return !q.UnusedSince.IsZero() && !k.LastUsedAt.Before(q.UnusedSince)
		})},
	{"has one cursor for all organizations", []string{"List/AllOrganizations"}, asking(func(q *issuing.Query) {
		if q.AllOrganizations && q.After != nil {
			q.After = &keystore.Key{ID: q.After.ID, CreatedAt: q.After.CreatedAt, Organization: "\uffff"}
		}
	})},
	{"has what expires in the order of organizations", []string{"List/ExpiringOfAll"}, leaving(
		func(q *issuing.Query) { q.ExpiresBefore = time.Time{} },
		func(q issuing.Query, k *keystore.Key) bool {
			return !q.ExpiresBefore.IsZero() && !k.ExpiresAt.Before(q.ExpiresBefore)
		})},
	{"counts a page", []string{"List/Total"}, listing(func(q issuing.Query, page *issuing.Listing) {
		page.Total = len(page.Keys)
	})},
	{"does not ask for a second status", []string{"List/Total"}, asking(func(q *issuing.Query) { q.OrStatus = "" })},
	{"takes what is searched for a pattern", []string{"List/Search"},
		asking(func(q *issuing.Query) { q.Search = strings.TrimRight(q.Search, "%_") })},
	{"does not ask which scopes are unused", []string{"Usage/ScopesUnused"},
		asking(func(q *issuing.Query) { q.ScopesUnusedSince = time.Time{} })},
	{"does not ask who made a key", []string{"List/CreatedBy"}, asking(func(q *issuing.Query) { q.CreatedBy = "" })},
	{"takes two people for one", []string{"List/CreatedBy"}, asking(func(q *issuing.Query) {
		q.CreatedBy = strings.TrimRight(q.CreatedBy, "\x00")
	})},
	{"has one order", []string{"List/ByLastUse", "List/ByExpiry"}, asking(func(q *issuing.Query) { q.Order = "" })},
	{"continues an order after a time, without the id", []string{"List/ByLastUse", "List/ByExpiry"},
		asking(func(q *issuing.Query) {
			if q.After != nil && q.Order != "" {
				q.After = q.After.Clone()
				q.After.ID = ""
			}
		})},
	{"leaves out what has no time in an order", []string{"List/ByLastUse", "List/ByExpiry"},
		leaving(func(*issuing.Query) {}, func(q issuing.Query, k *keystore.Key) bool {
			return q.Order != "" && q.Order.At(k) == q.Order.At(new(keystore.Key))
		})},
	{"sorts by expiry, whenever a key is revoked", []string{"List/ByExpiry"},
		listing(func(q issuing.Query, page *issuing.Listing) {
			if q.Order == issuing.ByExpiry {
				slices.SortFunc(page.Keys, func(a, b *keystore.Key) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
			}
		})},
	{"does not ask what a key replaces", []string{"List/Successor"},
		asking(func(q *issuing.Query) { q.RotatedFrom = "" })},
}

// edited stores a key that edit has changed.
func edited(edit func(k *keystore.Key)) func(b *broken) {
	return func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			k = k.Clone()
			edit(k)
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
	}
}

// looking returns what change makes of a copy of what a lookup has found.
func looking(change func(b *broken, k *keystore.Key, err error) (*keystore.Key, error)) func(b *broken) {
	return func(b *broken) {
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := b.Store.Lookup(ctx, d)
			if err == nil {
				k = k.Clone()
			}
			return change(b, k, err)
		}
	}
}

// ignoring stores nothing where a key is refused, and says that it has.
func ignoring(refusal error) func(b *broken) {
	return func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			if err := b.Store.Insert(ctx, k, e, maxKeys); !errors.Is(err, refusal) {
				return err
			}
			return nil
		}
	}
}

// unique refuses a key if there was one with the same text.
func unique(refusal error, text func(k *keystore.Key) string) func(b *broken) {
	return func(b *broken) {
		used := make(map[string]bool)
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			if used[text(k)] {
				return refusal
			}
			used[text(k)] = true
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
	}
}

// asking lists what another query asks for.
func asking(change func(q *issuing.Query)) func(b *broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			change(&q)
			return b.Store.List(ctx, organization, q)
		}
	}
}

// listing returns a page that change has changed.
func listing(change func(q issuing.Query, page *issuing.Listing)) func(b *broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			page, err := b.Store.List(ctx, organization, q)
			change(q, &page)
			return page, err
		}
	}
}

// leaving lists what change makes of a query, without the keys that drop says.
func leaving(change func(q *issuing.Query), drop func(q issuing.Query, k *keystore.Key) bool) func(b *broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			asked := q
			change(&asked)
			page, err := b.Store.List(ctx, organization, asked)
			page.Keys = slices.DeleteFunc(page.Keys, func(k *keystore.Key) bool { return drop(q, k) })
			return page, err
		}
	}
}

// unlikeOthers refuses a key if a text of it differs from another key's in case
// alone.
func unlikeOthers(text func(k *keystore.Key) string) func(b *broken) {
	return func(b *broken) {
		used := make(map[string]string) // by the text in lower case
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			folded := strings.ToLower(text(k))
			if other, ok := used[folded]; ok && other != text(k) {
				return issuing.ErrExists
			}
			used[folded] = text(k)
			return b.Store.Insert(ctx, k, e, maxKeys)
		}
	}
}
