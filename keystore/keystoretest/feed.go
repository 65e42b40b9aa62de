package keystoretest

import (
	"maps"

	"github.com/sallyport-go/sallyport/keystore"
)

func (t test) position() string {
	t.Helper()
	changed, next, err := t.Changes(t.Context(), "")
	if err != nil || len(changed) > 0 || next == "" {
		t.Fatalf("Changes from an empty position returned %d digests, position %q and %v, want a position alone",
			len(changed), next, err)
	}
	return next
}

// drain reads the feed as a cache does and returns what it named.
func (t test) drain(since string) (seen map[keystore.Digest]bool, next string) {
	t.Helper()
	seen = make(map[keystore.Digest]bool)
	for range 10_000 {
		changed, next, err := t.Changes(t.Context(), since)
		t.noError(err, "Changes from a position that it had returned itself")
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

// wantNews wants keys in the feed after a position, and returns the next one.
func (t test) wantNews(since, rule string, keys ...*keystore.Key) (next string) {
	t.Helper()
	seen, next := t.drain(since)
	t.wantSeen(seen, keys, "Changes after "+rule)
	return next
}

func (t test) wantSeen(seen map[keystore.Digest]bool, keys []*keystore.Key, rule string) {
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
func (t test) feedRace(keys []*keystore.Key, method string, write func(*keystore.Key) error) {
	t.Helper()
	at, all, done := t.position(), make(map[keystore.Digest]bool), make(chan []error, 1)
	go func() {
		done <- atOnce(len(keys), func(i int) error { return write(keys[i]) })
	}()
	for running := true; running; {
		select {
		case errs := <-done:
			t.allWin(errs, method)
			running = false
		default:
		}
		var seen map[keystore.Digest]bool
		seen, at = t.drain(at)
		maps.Copy(all, seen)
	}
	t.wantSeen(all, keys, "Changes read during calls of "+method)
}

var feedCases = []testCase{
	{"Feed/Updates", func(t test) {
		keys := inOrder(unique("org"), 3)
		t.insert(keys...)
		start := t.position()
		t.update(keys[0])
		t.update(keys[1])
		middle := t.wantNews(start, "two Updates", keys[:2]...)
		t.update(keys[2])
		t.update(keys[0])
		t.wantNews(middle, "the position that was returned", keys[0], keys[2])
		t.wantNews(start, "an older position, for another reader", keys...)
	}},

	{"Feed/Many", func(t test) {
		keys := inOrder(unique("org"), 120)
		t.insert(keys...)
		start := t.position()
		for _, k := range keys {
			t.update(k)
		}
		t.wantNews(start, "120 Updates", keys...)
	}},

	{"Feed/Race", func(t test) {
		keys := inOrder(unique("org"), racers)
		t.insert(keys...)
		t.feedRace(keys, "Update", t.tryUpdate)
	}},

	{"Feed/Inserts", func(t test) {
		keys := inOrder(unique("org"), 3)
		start := t.position()
		t.insert(keys[:2]...)
		middle := t.wantNews(start, "two Inserts", keys[:2]...)
		t.insert(keys[2])
		t.wantNews(middle, "another Insert, from the position that was returned", keys[2])
	}},

	{"Feed/InsertRace", func(t test) { t.feedRace(inOrder(unique("org"), racers), "Insert", t.tryInsert) }},

	{"Feed/UnknownPosition", func(t test) {
		_, _, err := t.Changes(t.Context(), "no position at all")
		t.wantError(err, keystore.ErrNotFound, "Changes from a position that the store does not know")
	}},
}
