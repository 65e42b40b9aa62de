package keystore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func route(pattern string) func() string { return func() string { return pattern } }

func wantRefused(t *testing.T, when string, got []keystore.Use, want ...string) {
	t.Helper()
	var texts []string
	for _, u := range got {
		texts = append(texts,
			fmt.Sprintf("%s %d %t: %s %q", u.ID, u.Requests, u.At.IsZero(), u.Refused.Code, u.Refused.Route))
		if (u.Refused.Code == "") != u.Refused.At.IsZero() {
			t.Errorf("%s: got %+v, want a time if there is a code", when, u.Refused)
		}
	}
	slices.Sort(texts)
	if !slices.Equal(texts, want) {
		t.Errorf("%s: got %q, want %q", when, texts, want)
	}
}

func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written, uses := newUses(nil, keystore.UsesOptions{})
		used, unused := key(1), key(2)
		uses.Refuse(unused, "expired", route("GET /a"))
		uses.Refuse(nil, "other", route("GET /a"))
		wantRefused(t, "a key that is not used", flushed(t, uses, written))

		uses.Record(used, anywhere)
		uses.Refuse(used, "first", route("GET /a"))
		uses.Refuse(used, "second", func() string { t.Error("a refusal that is not noted asks for its route"); return "" })
		wantRefused(t, "two refusals of a key in use", flushed(t, uses, written), `key_1 1 false: first "GET /a"`)
		uses.Refuse(used, "third", route("GET /a"))
		wantRefused(t, "a key whose use is written", flushed(t, uses, written))

		for n, want := range map[int]string{256: strings.Repeat("a", 256), 257: ""} {
			uses.Record(used, anywhere)
			uses.Refuse(used, "long", route(strings.Repeat("a", n)))
			wantRefused(t, fmt.Sprint(n, " bytes"), flushed(t, uses, written), fmt.Sprintf("key_1 1 false: long %q", want))
		}

		others := keystore.NewUses(newBook(nil), keystore.UsesOptions{})
		uses.Record(used, anywhere)
		others.Refuse(used, "other", route(""))
		wantRefused(t, "a refusal that another Uses is told of", flushed(t, uses, written), `key_1 1 false:  ""`)
	})
}

// A refusal of a child is none of its ancestors, whose keys work.
func TestRefuseAChild(t *testing.T) {
	root := &keystore.Key{ID: "key_1", Digest: keystore.DigestOf("a"), Organization: "acme"}
	child := &keystore.Key{ID: "key_2", Digest: keystore.DigestOf("b"), Organization: "acme", Parent: "key_1",
		Ancestors: []*keystore.Key{root}}
	written, uses := newUses(nil, keystore.UsesOptions{RefusedKeys: true})
	c := child.Bind(scope.Default())
	uses.Refuse(c, "expired", route(""))
	wantRefused(t, "not used", flushed(t, uses, written), `key_2 0 true: expired ""`)
	uses.Record(c, anywhere)
	uses.Refuse(c, "not_found", route(""))
	wantRefused(t, "used", flushed(t, uses, written), `key_1 1 false:  ""`, `key_2 1 false: not_found ""`)
}

// Whoever has a revoked key makes one write of it in an Interval, and no other.
func TestRefusedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written, uses := newUses(nil, keystore.UsesOptions{RefusedKeys: true})
		stop := runLastUsed(t, uses)
		for range 3 { // intervals
			for range 1000 {
				for _, c := range []*keystore.Caller{key(1), key(2)} { // not from a cache, which has one Caller of a key
					uses.Refuse(c, "expired", route(""))
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			calls := written.take()
			if len(calls) != 1 {
				t.Fatalf("got %d calls, want one in a minute", len(calls))
			}
			wantRefused(t, "a minute", calls[0], `key_1 0 true: expired ""`, `key_2 0 true: expired ""`)
		}
		if err := stop(); err != nil || len(written.take()) != 0 {
			t.Errorf("Run returned %v, or has written what is written", err)
		}

		c := key(1) // from a cache
		for _, code := range []string{"one", "two"} {
			uses.Refuse(c, code, route(""))
			wantRefused(t, "a cached key", flushed(t, uses, written), `key_1 0 true: `+code+` ""`)
		}

		written.fail.set(storeDown)
		uses.Refuse(c, "lost", route(""))
		uses.Flush(t.Context())
		uses.Refuse(c, "later", route(""))
		written.take()
		written.fail.set(nil)
		wantRefused(t, "after a failed write", flushed(t, uses, written), `key_1 0 true: later ""`)

		uses.SetRoom(1)
		uses.Refuse(key(1), "room", route(""))
		uses.Refuse(key(2), "no room", route(""))
		wantRefused(t, "with room for one", flushed(t, uses, written), `key_1 0 true: room ""`)
	})
}
