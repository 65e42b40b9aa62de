package keystoretest_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// brokenUsage break what AddUses and Usage promise.
var brokenUsage = []defect{
	{"keeps the address of whoever comes last", []string{"Usage/From"}, func(b *broken) {
		var last netip.Addr
		touched(func(u *keystore.Use) { last = u.From })(b)
		using(func(u *issuing.Usage) { u.LastUsedFrom = last })(b)
	}},
	{"keeps no time of the last use", []string{"Usage/From"},
		using(func(u *issuing.Usage) { u.LastUsedAt = time.Time{} })},
	{"takes the last day that is written for the last day", []string{"Usage/Scopes"}, func(b *broken) {
		last := make(map[scope.Name]time.Time)
		touched(func(u *keystore.Use) {
			for _, n := range u.Scopes {
				last[n] = u.At.Truncate(24 * time.Hour)
			}
		})(b)
		using(func(u *issuing.Usage) { u.Scopes = last })(b)
	}},
	{"keeps when a scope was needed and not the day", []string{"Usage/Scopes"}, using(func(u *issuing.Usage) {
		for n := range u.Scopes {
			u.Scopes[n] = u.Scopes[n].Add(time.Hour)
		}
	})},
	{"counts uses and not requests", []string{"Usage/Days", "Usage/Race"}, touched(func(u *keystore.Use) {
		u.Requests = min(u.Requests, 1)
	})},
	{"counts in the days of another zone", []string{"Usage/Days"}, touched(func(u *keystore.Use) {
		u.At = u.At.Add(time.Hour)
	})},
	{"keeps days for good", []string{"Usage/Days"}, using(func(u *issuing.Usage) {
		old := time.Now().UTC().AddDate(0, 0, -31).Truncate(24 * time.Hour)
		u.Days = append(u.Days, issuing.Day{Date: old, Requests: 2})
	})},
	{"observes since the last use", []string{"Usage/Observed"},
		using(func(u *issuing.Usage) { u.ObservedSince = u.LastUsedAt })},
	{"writes uses by id alone", []string{"AddUses/Others", "Usage/Others"}, func(b *broken) {
		touched(func(u *keystore.Use) { u.Organization = b.anywhere(u.ID).Organization })(b)
	}},
	{"reads usage by id alone", []string{"Usage/Others"}, func(b *broken) {
		b.usage = func(ctx context.Context, _, id string) (*issuing.Usage, error) {
			return b.Store.Usage(ctx, b.anywhere(id).Organization, id)
		}
	}},
	{"keeps uses of keys that are not there", []string{"Usage/Others"}, func(b *broken) {
		needed := make(map[string]time.Time)
		touched(func(u *keystore.Use) { needed[u.ID] = u.At })(b)
		b.usage = func(ctx context.Context, organization, id string) (*issuing.Usage, error) {
			u, err := b.Store.Usage(ctx, organization, id)
			if at := needed[id]; err == nil && u.Scopes == nil && !at.IsZero() {
				u.Scopes = map[scope.Name]time.Time{scope.TasksRead: at}
			}
			return u, err
		}
	}},
	{"hands out the usage that it keeps", []string{"Usage/Owned"}, func(b *broken) {
		kept := make(map[string]*issuing.Usage)
		b.usage = func(ctx context.Context, organization, id string) (u *issuing.Usage, err error) {
			if kept[id] == nil {
				kept[id], err = b.Store.Usage(ctx, organization, id)
			}
			return kept[id], err
		}
	}},
	{"keeps one refusal of a key", []string{"Usage/Refusals"}, using(func(u *issuing.Usage) {
		u.Refusals = u.Refusals[:min(len(u.Refusals), 1)]
	})},
	{"lists the oldest refusal first", []string{"Usage/Refusals"}, using(func(u *issuing.Usage) {
		slices.Reverse(u.Refusals)
	})},
	{"keeps the first refusal of a code", []string{"Usage/Refusals"}, func(b *broken) {
		var mu sync.Mutex
		first := make(map[string]bool)
		touched(func(u *keystore.Use) {
			mu.Lock()
			defer mu.Unlock()
			if first[u.ID+u.Refused.Code] {
				u.Refused = keystore.Refusal{}
			}
			first[u.ID+u.Refused.Code] = true
		})(b)
	}},
	{"takes a refusal for a use", []string{"Usage/Refusals"}, touched(func(u *keystore.Use) {
		if u.At.IsZero() {
			u.At = u.Refused.At
		}
	})},
	{"reads a count and writes it", []string{"Usage/Race"}, func(b *broken) {
		var mu sync.Mutex
		requests := make(map[string]int64)
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			for _, u := range uses {
				mu.Lock()
				before := requests[u.ID]
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				requests[u.ID] = before + u.Requests
				mu.Unlock()
			}
			return b.Store.AddUses(ctx, uses)
		}
		b.usage = func(ctx context.Context, organization, id string) (*issuing.Usage, error) {
			u, err := b.Store.Usage(ctx, organization, id)
			if err == nil {
				u.Days[0].Requests = requests[id]
			}
			return u, err
		}
	}},
}

// using reads usage that change has changed.
func using(change func(u *issuing.Usage)) func(b *broken) {
	return func(b *broken) {
		b.usage = func(ctx context.Context, organization, id string) (*issuing.Usage, error) {
			u, err := b.Store.Usage(ctx, organization, id)
			if err == nil {
				change(u)
			}
			return u, err
		}
	}
}

// touched writes uses that change has changed.
func touched(change func(u *keystore.Use)) func(b *broken) {
	return func(b *broken) {
		b.touch = func(ctx context.Context, uses []keystore.Use) error {
			for i := range uses {
				change(&uses[i])
			}
			return b.Store.AddUses(ctx, uses)
		}
	}
}
