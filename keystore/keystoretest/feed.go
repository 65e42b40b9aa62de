package keystoretest

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func position(t testing.TB, f keystore.Feed) string {
	t.Helper()
	changed, next, err := f.Changes(t.Context(), "")
	if err != nil || len(changed) > 0 || next == "" {
		t.Fatalf("Changes from an empty position returned %d digests, position %q and %v, want a position alone", len(changed), next, err)
	}
	return next
}

// drain reads the feed as a cache does and returns what it named.
func drain(t testing.TB, f keystore.Feed, since string) (seen map[keystore.Digest]bool, next string) {
	t.Helper()
	seen = make(map[keystore.Digest]bool)
	for range 10_000 {
		changed, next, err := f.Changes(t.Context(), since)
		if err != nil {
			t.Fatalf("Changes from a position it had returned itself gave %v, want nil", err)
		}
		for _, d := range changed {
			seen[d] = true
		}
		if len(changed) == 0 || next == since {
			return seen, next
		}
		since = next
	}
	t.Fatal("Changes went on forever, want no digests or the same position when nothing is left")
	return nil, ""
}

func wantSeen(t testing.TB, seen map[keystore.Digest]bool, keys []*keystore.Key, rule string) {
	t.Helper()
	missing := 0
	for _, k := range keys {
		if !seen[k.Digest] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%s: the feed left out %d of %d keys that were updated", rule, missing, len(keys))
	}
}

var feedCases = []testCase{
	{"Feed/Updates", func(t testing.TB, m keystore.Manager) {
		f := feed(t, m)
		keys := inOrder(unique("org"), 3)
		insert(t, m, keys...)
		start := position(t, f)
		update(t, m, keys[0])
		update(t, m, keys[1])
		seen, middle := drain(t, f, start)
		wantSeen(t, seen, keys[:2], "Changes after two Updates")
		update(t, m, keys[2])
		keys[0].Version++
		update(t, m, keys[0])
		seen, _ = drain(t, f, middle)
		wantSeen(t, seen, []*keystore.Key{keys[0], keys[2]}, "Changes from the position that was returned")
		seen, _ = drain(t, f, start)
		wantSeen(t, seen, keys, "Changes from an older position, for another reader")
	}},

	{"Feed/Many", func(t testing.TB, m keystore.Manager) {
		f := feed(t, m)
		keys := inOrder(unique("org"), 120)
		insert(t, m, keys...)
		start := position(t, f)
		for _, k := range keys {
			update(t, m, k)
		}
		seen, _ := drain(t, f, start)
		wantSeen(t, seen, keys, "Changes after 120 Updates")
	}},

	{"Feed/Race", func(t testing.TB, m keystore.Manager) {
		f := feed(t, m)
		keys := inOrder(unique("org"), racers)
		insert(t, m, keys...)
		at := position(t, f)
		all := make(map[keystore.Digest]bool)
		done := make(chan []error)
		go func() {
			done <- atOnce(racers, func(i int) error { return m.Update(t.Context(), keys[i]) })
		}()
		// Reading goes on while updates commit, in whatever order they do.
		for running := true; running; {
			select {
			case errs := <-done:
				for _, err := range errs {
					if err != nil {
						t.Errorf("Update of one of several keys at once returned %v, want nil", err)
					}
				}
				running = false
			default:
			}
			var seen map[keystore.Digest]bool
			seen, at = drain(t, f, at)
			for d := range seen {
				all[d] = true
			}
		}
		wantSeen(t, all, keys, "Changes read while the Updates were running")
	}},

	{"Feed/UnknownPosition", func(t testing.TB, m keystore.Manager) {
		_, _, err := feed(t, m).Changes(t.Context(), "no position at all")
		wantError(t, err, keystore.ErrNotFound, "Changes from a position that the store does not know")
	}},
}
