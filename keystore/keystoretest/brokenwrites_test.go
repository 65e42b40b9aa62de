package keystoretest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// brokenWrites break what Update, AddUses and Changes promise, and what every
// method does when it cannot answer.
var brokenWrites = []defect{
	{"takes empty fields for absent ones", []string{"Update/Fields"}, updating(func(b *broken, k *keystore.Key) {
		before, err := b.Store.Find(context.Background(), k.Organization, k.ID)
		if err == nil && k.RevokedAt.IsZero() {
			k.RevokedAt = before.RevokedAt
		}
	})},
	{"leaves attributes and networks as they were inserted", []string{"Update/Fields", "Update/KeepsNothing"},
		updating(func(b *broken, k *keystore.Key) {
			before := b.anywhere(k.ID)
			k.Attributes, k.Networks = before.Attributes, before.Networks
		})},
	{"updates every column", []string{"Update/FixedFields"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			return errors.Join(b.Store.Update(ctx, k, e),
				b.Store.AddUses(ctx, []keystore.Use{{Organization: k.Organization, ID: k.ID, At: k.LastUsedAt}}))
		}
	}},
	{"lets the last writer win", []string{"Update/Conflict", "Update/Race"}, func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			for {
				k = k.Clone()
				if before, err := b.Store.Find(ctx, k.Organization, k.ID); err == nil {
					k.Version = before.Version
				}
				if err := b.Store.Update(ctx, k, e); !errors.Is(err, issuing.ErrConflict) {
					return err
				}
			}
		}
	}},
	{"updates by id alone", []string{"Update/Others"}, updating(func(b *broken, k *keystore.Key) {
		k.Organization = b.anywhere(k.ID).Organization
	})},
	{"updates whatever the digest", []string{"Update/Others"}, updating(func(b *broken, k *keystore.Key) {
		k.Digest = b.anywhere(k.ID).Digest
	})},
	{"reads from a replica", []string{"Update/SeenAtOnce"}, func(b *broken) {
		replica := make(map[string]*keystore.Key)
		looking(func(_ *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			replica[k.ID] = cmp.Or(replica[k.ID], k)
			return replica[k.ID], err
		})(b)
	}},
	{"takes a context that has ended for a key that is not there", []string{"Context/Reads", "Context/Writes"},
		func(b *broken) {
			b.find = func(ctx context.Context, organization, id string) (*keystore.Key, error) {
				k, err := b.Store.Find(ctx, organization, id)
				if err != nil {
					err = keystore.ErrNotFound
				}
				return k, err
			}
			b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
				if ctx.Err() != nil {
					return issuing.ErrConflict
				}
				return b.Store.Update(ctx, k, e)
			}
		}},
	{"says nothing when a context has ended", []string{"Context/Writes"}, func(b *broken) {
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			b.Store.Insert(ctx, k, e, maxKeys)
			return nil
		}
	}},
	{"takes a backend that is away for one that is empty", []string{"Unavailable"}, func(*broken) {}},
	{"lets the last use win", []string{"AddUses/Forward"}, func(b *broken) {
		used := make(map[string]time.Time)
		b.touch = func(_ context.Context, uses []keystore.Use) error {
			for _, u := range uses {
				used[u.ID] = u.At
			}
			return nil
		}
		b.find = func(ctx context.Context, organization, id string) (*keystore.Key, error) {
			k, err := b.Store.Find(ctx, organization, id)
			k.LastUsedAt = used[id]
			return k, err
		}
	}},
	{"touches a hundred keys", []string{"AddUses/Many"}, func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			return b.Store.AddUses(ctx, uses[:min(len(uses), 100)])
		}
	}},
	{"counts a use as a version", []string{"AddUses/NothingElse", "AddUses/RevokeRace"}, func(b *broken) {
		touched(func(u *keystore.Use) {
			if k, err := b.Store.Find(context.Background(), u.Organization, u.ID); err == nil {
				b.Store.Update(context.Background(), k, issuing.AuditEntry{})
			}
		})(b)
	}},
	{"takes a cancelled call for one that is done", []string{"Context/AddUses", "Context/Changes"}, func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			if ctx.Err() != nil {
				return nil
			}
			return b.Store.AddUses(ctx, uses)
		}
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			if ctx.Err() != nil {
				return nil, since, nil
			}
			return b.Store.Changes(ctx, since)
		}
	}},
	{"never has news", []string{"Feed/Updates", "Feed/Race", "Feed/Inserts", "Feed/InsertRace"},
		naming(func(*broken, []keystore.Digest) []keystore.Digest { return nil })},
	{"cuts an answer but not its position", []string{"Feed/Many"},
		naming(func(_ *broken, changed []keystore.Digest) []keystore.Digest { return changed[:min(len(changed), 100)] })},
	{"names changed keys alone", []string{"Feed/Inserts", "Feed/InsertRace"},
		naming(func(b *broken, changed []keystore.Digest) []keystore.Digest {
			return slices.DeleteFunc(changed, func(d keystore.Digest) bool {
				k, err := b.Store.Lookup(context.Background(), d)
				return err == nil && k.Version == 1
			})
		})},
	{"numbers changes before they are there", []string{"Feed/Race"}, func(b *broken) {
		write := numberedTooEarly(b)
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			return write(k, func() error { return b.Store.Update(ctx, k, e) })
		}
	}},
	{"numbers new keys before they are there", []string{"Feed/InsertRace"}, func(b *broken) {
		write := numberedTooEarly(b)
		b.insert = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
			return write(k, func() error { return b.Store.Insert(ctx, k, e, maxKeys) })
		}
	}},
	{"starts again at an unknown position", []string{"Feed/UnknownPosition"}, func(b *broken) {
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			changed, next, err := b.Store.Changes(ctx, since)
			if errors.Is(err, keystore.ErrNotFound) {
				return b.Store.Changes(ctx, "")
			}
			return changed, next, err
		}
	}},
}

// updating changes a key to what change has made of it.
func updating(change func(b *broken, k *keystore.Key)) func(b *broken) {
	return func(b *broken) {
		b.update = func(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
			k = k.Clone()
			change(b, k)
			return b.Store.Update(ctx, k, e)
		}
	}
}

// naming has a feed that names what change makes of the keys that it would name.
func naming(change func(b *broken, changed []keystore.Digest) []keystore.Digest) func(b *broken) {
	return func(b *broken) {
		b.changes = func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			changed, next, err := b.Store.Changes(ctx, since)
			return change(b, changed), next, err
		}
	}
}

// numberedTooEarly gives b a feed of what is written by the function that it
// returns, like one over a sequence in a database: the first write draws its
// number, and commits when a reader has seen the numbers of others already.
func numberedTooEarly(b *broken) func(k *keystore.Key, write func() error) error {
	var mu sync.Mutex
	var drawn int
	committed := make(map[int]keystore.Digest)
	overtaken := make(chan struct{})
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
	return func(k *keystore.Key, write func() error) error {
		mu.Lock()
		drawn++
		number := drawn
		mu.Unlock()
		if number == 1 {
			<-overtaken
		}
		err := write()
		mu.Lock()
		defer mu.Unlock()
		committed[number] = k.Digest
		return err
	}
}
