package keystore

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/sallyport-go/sallyport/scope"
)

func acceptedAs(d Digest, id string) *accepted {
	return &accepted{deadline: time.Hour, key: Key{ID: id, Digest: d}}
}

func wantAccepted(t *testing.T, a *answers, d Digest, id string) {
	t.Helper()
	found := a.find(d, 0)
	switch {
	case found == nil && id != "":
		t.Errorf("key %q is not remembered", id)
	case found != nil && found.key.ID != id:
		t.Errorf("found key %q, want %q", found.key.ID, id)
	}
}

// Two keys that share a place in front are both found, whichever of them has it.
func TestAnswersSharedPlace(t *testing.T) {
	a := newAnswers(10, 10)
	one, two := Digest{0: 1}, Digest{0: 2}
	if a.place(one) != a.place(two) {
		t.Fatal("the digests do not share a place")
	}
	a.accept(one, 0, acceptedAs(one, "one"))
	a.accept(two, 0, acceptedAs(two, "two"))
	if found := a.place(two).Load(); found == nil || found.key.Digest != two {
		t.Error("the later key does not have the place")
	}
	wantAccepted(t, a, one, "one")
	wantAccepted(t, a, two, "two")
	a.forget(one)
	wantAccepted(t, a, one, "")
	wantAccepted(t, a, two, "two")
	a.forget(two)
	wantAccepted(t, a, two, "")
}

// A size that is meant as no bound takes no memory for what is not there.
func TestAnswersUnbounded(t *testing.T) {
	a := newAnswers(math.MaxInt, math.MaxInt)
	d := Digest{0: 1}
	a.accept(d, 0, acceptedAs(d, "one"))
	wantAccepted(t, a, d, "one")
}

// What the LRU drops is out of front too, and a key that takes the place of an
// older record of itself is not.
func TestAnswersEviction(t *testing.T) {
	a := newAnswers(1, 1)
	one, two := Digest{0: 1}, Digest{0: 2}
	a.accept(one, 0, acceptedAs(one, "one"))
	a.accept(one, 0, acceptedAs(one, "one again"))
	wantAccepted(t, a, one, "one again")
	a.accept(two, 0, acceptedAs(two, "two"))
	wantAccepted(t, a, one, "")
	wantAccepted(t, a, two, "two")
	a.accepts.Remove(two)
	wantAccepted(t, a, two, "")
}

// An answer that the LRU has dropped, and that somebody is about to take out of
// front, does not outlive a revocation.
func TestAnswersForgetBeforeEvictionEnds(t *testing.T) {
	for name, forget := range map[string]func(*answers, Digest){
		"one": (*answers).forget,
		"all": func(a *answers, _ Digest) { a.forgetAll() },
	} {
		a := newAnswers(10, 10)
		d := Digest{0: 1}
		a.place(d).Store(acceptedAs(d, "revoked"))
		forget(a, d)
		if a.find(d, 0) != nil {
			t.Errorf("%s: a forgotten key is accepted", name)
		}
		a.accept(d, 0, acceptedAs(d, "from before"))
		if a.find(d, 0) != nil {
			t.Errorf("%s: an answer from before is accepted", name)
		}
	}
}

// What was asked before somebody forgot is remembered as little when it is a
// refusal, and forgetting everything includes refusals.
func TestAnswersForgetRefusals(t *testing.T) {
	a := newAnswers(10, 10)
	d := Digest{0: 1}
	a.forget(d)
	a.refuse(d, 0, answer{nil, time.Hour})
	if _, ok, _ := a.get(d, 0); ok {
		t.Error("a refusal from before is remembered")
	}
	a.refuse(d, 1, answer{nil, time.Hour})
	if _, ok, _ := a.get(d, 0); !ok {
		t.Error("a refusal is not remembered")
	}
	a.forgetAll()
	if _, ok, _ := a.get(d, 0); ok {
		t.Error("a refusal is left after everything was forgotten")
	}
}

// A use is known to the LRU when it lies a second after the last, and not before.
func TestAnswersPromotion(t *testing.T) {
	for now, kept := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		a := newAnswers(2, 2)
		one, two, three := Digest{0: 1}, Digest{0: 2, 8: 0x80, 15: 0x80}, Digest{0: 3, 8: 0x80, 15: 0x80}
		if a.place(one) == a.place(two) {
			t.Fatal("the digests share a place")
		}
		a.accept(one, 0, acceptedAs(one, "one"))
		a.accept(two, 0, acceptedAs(two, "two"))
		a.find(one, now)
		a.accept(three, 0, acceptedAs(three, "three"))
		if got := a.find(one, now) != nil; got != kept {
			t.Errorf("used after %v: kept %t, want %t", now, got, kept)
		}
	}
}

// A question of the generation that forgetAll begins is not answered with what it
// is about to drop: a lookup that begins later could join it.
func TestForgetAllBeforeTheNextGeneration(t *testing.T) {
	store := NewMemory()
	c := NewCached(store, CacheOptions{})
	k := &Key{ID: "key_1", Organization: "acme", Environment: Sandbox} // of stripe 0
	if err := store.Insert(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lookup(t.Context(), k.Digest); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := store.Find(t.Context(), "acme", "key_1")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Suspended = true
	if err := store.Update(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}

	last := &c.answers.stripes[len(c.answers.stripes)-1].mu
	last.Lock() // forgetAll gets no further than here
	forgotten := make(chan struct{})
	go func() {
		c.answers.forgetAll()
		close(forgotten)
	}()
	first := &c.answers.stripes[0]
	for range 10_000 {
		runtime.Gosched()
		if !first.mu.TryLock() {
			break
		}
		begun := first.generation > 0
		first.mu.Unlock()
		if begun {
			break
		}
	}
	found := make(chan *Key)
	go func() {
		k, _ := c.fly(context.Background(), k.Digest, c.answers.generation(k.Digest))
		found <- k
	}()
	for range 10_000 {
		runtime.Gosched()
	}
	last.Unlock()
	<-forgotten
	if k := <-found; k.RefusedNow() == nil {
		t.Error("a question of the new generation got the answer from before")
	}
}

// The defaults are what the documentation says.
func TestCacheDefaults(t *testing.T) {
	want := CacheOptions{
		TTL: 30 * time.Second, NegativeTTL: 5 * time.Second, Size: 100_000, NegativeSize: 100_000, Timeout: 2 * time.Second,
		Loads: 64, Registry: scope.Contract(), FeedInterval: 5 * time.Second, Logger: slog.Default(),
	}
	if got := (CacheOptions{}).withDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What tells whether an answer is the one that is asked for, and young enough, lies in
// the first cache line.
func TestAcceptedLayout(t *testing.T) {
	var a accepted
	if end := unsafe.Offsetof(a.key) + unsafe.Offsetof(a.key.Digest) + unsafe.Sizeof(a.key.Digest); end > 64 {
		t.Errorf("the digest ends at byte %d", end)
	}
}
