package console

import (
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxCount = 99  // the strip says "99+" for more
	maxUsage = 100 // keys whose usage a request reads

	idleAfter = 100 * day // longer than a quarter, so that a job of each quarter keeps its scopes
)

// care returns those of the choices that need some, with the number of their
// keys.
func (x *exchange) care(shows []show) (counted []show, err error) {
	for _, c := range shows {
		if !c.Care {
			continue
		}
		limit := maxCount
		if c.among != nil {
			limit = maxRead
		}
		keys, last, err := x.find(selection{Status: c.Value}, nil, limit)
		if err != nil {
			return nil, err
		}
		if c.Count = strconv.Itoa(len(keys)); last != nil {
			c.Count += "+"
		}
		counted = append(counted, c)
	}
	return counted, nil
}

// withIdleScopes returns those of the keys that are used and hold scopes that
// were not needed for 100 days. Of keys for which that can be, it looks at the
// first 100, and returns the last of them in place of last if there are others.
func (x *exchange) withIdleScopes(keys []*keystore.Key, last *keystore.Key) (
	[]*keystore.Key, *keystore.Key, error) {
	since := time.Now().Add(-idleAfter)
	candidates := slices.DeleteFunc(keys, func(k *keystore.Key) bool {
		return len(k.Scopes) < 2 || k.CreatedAt.After(since) || k.LastUsedAt.Before(since)
	})
	if len(candidates) > maxUsage {
		candidates = candidates[:maxUsage]
		last = candidates[maxUsage-1]
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i, k := range candidates {
		group.Go(func() error {
			use, err := x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
			if err != nil || len(idleScopes(k, use)) == 0 {
				candidates[i] = nil
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(candidates, func(k *keystore.Key) bool { return k == nil }), last, err
}

// idleScopes returns the scopes of k that no request has needed for 100 days, if
// some of its others were. They can be taken away, and nothing that the key did
// in this time will be refused.
func idleScopes(k *keystore.Key, use *issuing.Usage) (idle []scope.Name) {
	since := time.Now().Add(-idleAfter)
	if use.ObservedSince.IsZero() || use.ObservedSince.After(since) {
		return nil
	}
	for _, n := range k.Scopes {
		// A day stands for its midnight.
		if use.Scopes[n].Before(since.Add(-day)) {
			idle = append(idle, n)
		}
	}
	if len(idle) == len(k.Scopes) {
		return nil
	}
	return idle
}
