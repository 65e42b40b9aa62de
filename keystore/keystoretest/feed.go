package keystoretest

import (
	"maps"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func position(t testing.TB, f issuing.Store) string {
	t.Helper()
	changed, next, err := f.Changes(t.Context(), "")
	if err != nil || len(changed) > 0 || next == "" {
		t.Fatalf("Changes from an empty position returned %d digests, position %q and %v, want a position alone",
			len(changed), next, err)
	}
	return next
}

// drain reads the feed as a cache does and returns what it named.
func drain(t testing.TB, f issuing.Store, since string) (seen map[keystore.Digest]bool, next string) {
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
		t.Errorf("%s: the feed left out %d of %d keys", rule, missing, len(keys))
	}
}

// feedRace reads the feed while keys are written, in whatever order the writes
// commit.
func feedRace(t testing.TB, m issuing.Store, keys []*keystore.Key, method string,
	write func(*keystore.Key) error) {
	t.Helper()
	at := position(t, m)
	all := make(map[keystore.Digest]bool)
	done := make(chan []error)
	go func() {
		done <- atOnce(len(keys), func(i int) error { return write(keys[i]) })
	}()
	for running := true; running; {
		select {
		case errs := <-done:
			for _, err := range errs {
				if err != nil {
					t.Errorf("%s of one of several keys at once returned %v, want nil", method, err)
				}
			}
			running = false
		default:
		}
		var seen map[keystore.Digest]bool
		seen, at = drain(t, m, at)
		maps.Copy(all, seen)
	}
	wantSeen(t, all, keys, "Changes read during calls of "+method)
}

var feedCases = []testCase{
	{"Feed/Updates", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 3)
		insert(t, m, keys...)
		start := position(t, m)
		update(t, m, keys[0])
		update(t, m, keys[1])
		seen, middle := drain(t, m, start)
		wantSeen(t, seen, keys[:2], "Changes after two Updates")
		update(t, m, keys[2])
		keys[0].Version++
		update(t, m, keys[0])
		seen, _ = drain(t, m, middle)
		wantSeen(t, seen, []*keystore.Key{keys[0], keys[2]}, "Changes from the position that was returned")
		seen, _ = drain(t, m, start)
		wantSeen(t, seen, keys, "Changes from an older position, for another reader")
	}},

	{"Feed/Many", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 120)
		insert(t, m, keys...)
		start := position(t, m)
		for _, k := range keys {
			update(t, m, k)
		}
		seen, _ := drain(t, m, start)
		wantSeen(t, seen, keys, "Changes after 120 Updates")
	}},

	{"Feed/Race", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), racers)
		insert(t, m, keys...)
		feedRace(t, m, keys, "Update", func(k *keystore.Key) error { return m.Update(t.Context(), k, newEntry(k)) })
	}},

	{"Feed/Inserts", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 3)
		start := position(t, m)
		insert(t, m, keys[:2]...)
		seen, middle := drain(t, m, start)
		wantSeen(t, seen, keys[:2], "Changes after two Inserts")
		insert(t, m, keys[2])
		seen, _ = drain(t, m, middle)
		wantSeen(t, seen, keys[2:], "Changes after another Insert, from the position that was returned")
	}},

	{"Feed/InsertRace", func(t testing.TB, m issuing.Store) {
		feedRace(t, m, inOrder(unique("org"), racers), "Insert",
			func(k *keystore.Key) error { return m.Insert(t.Context(), k, newEntry(k), 0) })
	}},

	{"Feed/UnknownPosition", func(t testing.TB, m issuing.Store) {
		_, _, err := m.Changes(t.Context(), "no position at all")
		wantError(t, err, keystore.ErrNotFound, "Changes from a position that the store does not know")
	}},
}
