package keystoretest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
	"github.com/sallyport-go/sallyport/scope"
)

// Each store breaks one rule, and each case of the suite has at least one store
// that it fails.
var brokenStores = []struct {
	name  string
	fails []string
	store func(b *broken)
}{
	{"says unknown with an error of its own", []string{"Lookup/Unknown"}, func(b *broken) {
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := b.Memory.Lookup(ctx, d)
			if err != nil {
				err = errors.New("no rows in result set")
			}
			return k, err
		}
	}},
	{"has no column for the hint", []string{"Lookup/Record", "Find/Record", "FindIssued/Record", "List/Order"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) { k.Hint = "" })
	}},
	{"compares 30 bytes of the digest", []string{"Lookup/WholeDigest"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) { k.Digest[30], k.Digest[31] = 0, 0 })
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			d[30], d[31] = 0, 0
			return b.Memory.Lookup(ctx, d)
		}
	}},
	{"hides keys that are refused", []string{"Lookup/Refused"}, func(b *broken) {
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := b.Memory.Lookup(ctx, d)
			if err == nil && k.Refused(time.Now()) != nil {
				return nil, keystore.ErrNotFound
			}
			return k, err
		}
	}},
	{"writes the version into the caller's key", []string{"Insert/Version", "Update/Fields"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key) error {
			k.Version = 1
			return b.Memory.Insert(ctx, k)
		}
		b.update = func(ctx context.Context, k *keystore.Key) error {
			err := b.Memory.Update(ctx, k)
			k.Version++
			return err
		}
	}},
	{"keeps the caller's key", []string{"Insert/KeepsNothing", "Update/KeepsNothing"}, func(b *broken) {
		kept := make(map[keystore.Digest]*keystore.Key)
		b.insert = func(ctx context.Context, k *keystore.Key) error {
			kept[k.Digest] = k
			return b.Memory.Insert(ctx, k)
		}
		b.lookup = func(_ context.Context, d keystore.Digest) (*keystore.Key, error) { return kept[d], nil }
	}},
	{"ignores duplicates", []string{
		"Insert/ExistingID", "Insert/ExistingDigest", "Insert/ExistingIssueToken", "Insert/IssueTokenRace", "Insert/DigestRace",
	}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key) error {
			if err := b.Memory.Insert(ctx, k); !errors.Is(err, keystore.ErrExists) {
				return err
			}
			return nil
		}
	}},
	{"makes issue tokens unique in the organization", []string{"Insert/OtherIssueTokens"}, func(b *broken) {
		used := make(map[[2]string]bool)
		b.insert = func(ctx context.Context, k *keystore.Key) error {
			if used[[2]string{k.Organization, k.IssueToken}] {
				return keystore.ErrExists
			}
			used[[2]string{k.Organization, k.IssueToken}] = true
			return b.Memory.Insert(ctx, k)
		}
	}},
	{"keeps milliseconds", []string{"Insert/Times"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) { k.CreatedAt = k.CreatedAt.Truncate(time.Millisecond) })
	}},
	{"keeps no zero time", []string{"Insert/Times", "List/Status"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) {
			if k.ExpiresAt.IsZero() {
				k.ExpiresAt = time.Unix(0, 0)
			}
		})
	}},
	{"trims text", []string{"Text/Fields"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) { k.Name = strings.TrimSpace(k.Name) })
	}},
	{"compares organizations without regard to case", []string{"Text/Distinct"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) { k.Organization = strings.ToLower(k.Organization) })
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			return b.Memory.List(ctx, strings.ToLower(organization), p)
		}
	}},
	{"drops unknown scopes", []string{"Text/UnknownScopes"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) {
			k.Scopes = slices.DeleteFunc(k.Scopes, func(n scope.Name) bool { return !scope.Contract().Known(n) })
		})
	}},
	{"joins scopes with commas", []string{"Text/UnknownScopes"}, func(b *broken) {
		b.insert = edited(b, func(k *keystore.Key) {
			var joined []string
			for _, n := range k.Scopes {
				joined = append(joined, strings.Split(string(n), ",")...)
			}
			k.Scopes = nil
			for _, n := range joined {
				k.Scopes = append(k.Scopes, scope.Name(n))
			}
		})
	}},
	{"finds by id alone", []string{"Find/OtherOrganization"}, func(b *broken) {
		b.find = func(ctx context.Context, _, id string) (*keystore.Key, error) {
			return b.Memory.Find(ctx, b.anywhere(id).Organization, id)
		}
	}},
	{"finds nothing that was issued", []string{"FindIssued/Record"}, func(b *broken) {
		b.findIssued = func(context.Context, string, string, string) (*keystore.Key, error) {
			return nil, keystore.ErrNotFound
		}
	}},
	{"takes an empty issue token for one", []string{"FindIssued/Others"}, func(b *broken) {
		b.findIssued = func(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
			if page, err := b.Memory.List(ctx, organization, keystore.Page{}); token == "" && err == nil {
				return page[0], nil
			}
			return b.Memory.FindIssued(ctx, organization, actor, token)
		}
	}},
	{"hands out what Lookup shares", []string{"Find/Owned"}, func(b *broken) {
		b.find = func(ctx context.Context, _, id string) (*keystore.Key, error) {
			return b.Memory.Lookup(ctx, b.anywhere(id).Digest)
		}
	}},
	{"lists the oldest first", []string{"List/Order"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			page, err := b.Memory.List(ctx, organization, p)
			slices.Reverse(page)
			return page, err
		}
	}},
	{"continues after a time, without the id", []string{"List/Pages"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			p.After.ID = ""
			return b.Memory.List(ctx, organization, p)
		}
	}},
	{"has a default of its own for pages", []string{"List/Limits"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			p.Limit = cmp.Or(max(p.Limit, 0), 20)
			return b.Memory.List(ctx, organization, p)
		}
	}},
	{"lists for whoever's cursor it is", []string{"List/Isolation"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			return b.Memory.List(ctx, cmp.Or(b.anywhere(p.After.ID).Organization, organization), p)
		}
	}},
	{"filters a page after cutting it", []string{"List/Environment"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			wanted := p.Environment
			p.Environment = ""
			page, err := b.Memory.List(ctx, organization, p)
			return slices.DeleteFunc(page, func(k *keystore.Key) bool { return wanted != "" && k.Environment != wanted }), err
		}
	}},
	{"calls a key revoked that will be", []string{"List/Status"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
			page, err := b.Memory.List(ctx, organization, p)
			return slices.DeleteFunc(page, func(k *keystore.Key) bool {
				return p.Status == keystore.Active && !k.RevokedAt.IsZero()
			}), err
		}
	}},
	{"takes empty fields for absent ones", []string{"Update/Fields"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key) error {
			k = k.Clone()
			if before, err := b.Memory.Find(ctx, k.Organization, k.ID); err == nil && k.RevokedAt.IsZero() {
				k.RevokedAt = before.RevokedAt
			}
			return b.Memory.Update(ctx, k)
		}
	}},
	{"updates every column", []string{"Update/FixedFields"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key) error {
			return errors.Join(b.Memory.Update(ctx, k),
				b.Memory.Touch(ctx, []keystore.Use{{Organization: k.Organization, ID: k.ID, At: k.LastUsedAt}}))
		}
	}},
	{"lets the last writer win", []string{"Update/Conflict", "Update/Race"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key) error {
			for {
				k = k.Clone()
				if before, err := b.Memory.Find(ctx, k.Organization, k.ID); err == nil {
					k.Version = before.Version
				}
				if err := b.Memory.Update(ctx, k); !errors.Is(err, keystore.ErrConflict) {
					return err
				}
			}
		}
	}},
	{"updates by id alone", []string{"Update/Others"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key) error {
			k = k.Clone()
			k.Organization = b.anywhere(k.ID).Organization
			return b.Memory.Update(ctx, k)
		}
	}},
	{"updates whatever the digest", []string{"Update/Others"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key) error {
			k = k.Clone()
			k.Digest = b.anywhere(k.ID).Digest
			return b.Memory.Update(ctx, k)
		}
	}},
	{"reads from a replica", []string{"Update/SeenAtOnce"}, func(b *broken) {
		replica := make(map[keystore.Digest]*keystore.Key)
		b.lookup = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if k := replica[d]; k != nil {
				return k, nil
			}
			k, err := b.Memory.Lookup(ctx, d)
			replica[d] = k
			return k, err
		}
	}},
	{"takes a context that has ended for a key that is not there", []string{"Context/Reads", "Context/Writes"}, func(b *broken) {
		b.find = func(ctx context.Context, organization, id string) (*keystore.Key, error) {
			k, err := b.Memory.Find(ctx, organization, id)
			if err != nil {
				err = keystore.ErrNotFound
			}
			return k, err
		}
		b.update = func(ctx context.Context, k *keystore.Key) error {
			if ctx.Err() != nil {
				return keystore.ErrConflict
			}
			return b.Memory.Update(ctx, k)
		}
	}},
	{"says nothing when a context has ended", []string{"Context/Writes"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key) error {
			b.Memory.Insert(ctx, k)
			return nil
		}
	}},
	{"takes a backend that is away for one that is empty", []string{"Unavailable"}, func(*broken) {}},
	{"lets the last use win", []string{"Touch/Forward"}, func(b *broken) {
		used := make(map[string]time.Time)
		b.touch = func(_ context.Context, uses []keystore.Use) error {
			for _, u := range uses {
				used[u.ID] = u.At
			}
			return nil
		}
		b.find = func(ctx context.Context, organization, id string) (*keystore.Key, error) {
			k, err := b.Memory.Find(ctx, organization, id)
			k.LastUsedAt = used[id]
			return k, err
		}
	}},
	{"touches by id alone", []string{"Touch/Others"}, func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			uses = slices.Clone(uses)
			for i, u := range uses {
				uses[i].Organization = b.anywhere(u.ID).Organization
			}
			return b.Memory.Touch(ctx, uses)
		}
	}},
	{"touches a hundred keys", []string{"Touch/Many"}, func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			return b.Memory.Touch(ctx, uses[:min(len(uses), 100)])
		}
	}},
	{"counts a use as a version", []string{"Touch/NothingElse", "Touch/RevokeRace"}, func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			for _, u := range uses {
				if k, err := b.Memory.Find(ctx, u.Organization, u.ID); err == nil {
					b.Memory.Update(ctx, k)
				}
			}
			return b.Memory.Touch(ctx, uses)
		}
	}},
	{"never has news", []string{"Feed/Updates", "Feed/Race"}, func(b *broken) {
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			_, next, err := b.Memory.Changes(ctx, since)
			return nil, next, err
		}
	}},
	{"cuts an answer but not its position", []string{"Feed/Many"}, func(b *broken) {
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			changed, next, err := b.Memory.Changes(ctx, since)
			return changed[:min(len(changed), 100)], next, err
		}
	}},
	{"numbers changes before they are there", []string{"Feed/Race"}, numberedTooEarly},
	{"starts again at an unknown position", []string{"Feed/UnknownPosition"}, func(b *broken) {
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			changed, next, err := b.Memory.Changes(ctx, since)
			if errors.Is(err, keystore.ErrNotFound) {
				return b.Memory.Changes(ctx, "")
			}
			return changed, next, err
		}
	}},
}

// edited stores a key that edit has changed.
func edited(b *broken, edit func(k *keystore.Key)) func(context.Context, *keystore.Key) error {
	return func(ctx context.Context, k *keystore.Key) error {
		k = k.Clone()
		edit(k)
		return b.Memory.Insert(ctx, k)
	}
}

// numberedTooEarly makes a feed like one over a sequence in a database: the
// first update draws its number, and commits when a reader has seen the
// numbers of others already.
func numberedTooEarly(b *broken) {
	var mu sync.Mutex
	var drawn int
	committed := make(map[int]keystore.Digest)
	overtaken := make(chan struct{})
	b.update = func(ctx context.Context, k *keystore.Key) error {
		mu.Lock()
		drawn++
		number := drawn
		mu.Unlock()
		if number == 1 {
			<-overtaken
		}
		err := b.Memory.Update(ctx, k)
		mu.Lock()
		defer mu.Unlock()
		committed[number] = k.Digest
		return err
	}
	b.changes = func(_ context.Context, since string) (changed []keystore.Digest, next string, err error) {
		mu.Lock()
		defer mu.Unlock()
		after, _ := strconv.Atoi(since)
		last := after
		for number, d := range committed {
			if number > after {
				changed = append(changed, d)
				last = max(last, number)
			}
		}
		if after < 2 && last >= 2 {
			close(overtaken)
		}
		return changed, strconv.Itoa(last), nil
	}
}

func TestSuiteCatches(t *testing.T) {
	caught := make(map[string]bool)
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.fails {
				messages := keystoretest.Failures(t, name, breakStore(b.store))
				if len(messages) == 0 {
					t.Errorf("case %s passed on a store that %s", name, b.name)
				}
				caught[name] = true
			}
		})
	}
	for _, name := range keystoretest.Names() {
		if !caught[name] {
			t.Errorf("no broken store shows what case %s is for", name)
		}
	}
}
