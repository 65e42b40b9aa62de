package keystore

import (
	"math"
	"testing"
	"time"
)

func acceptedAs(d Digest, id string) *accepted {
	return &accepted{deadline: time.Hour, key: Key{ID: id, Digest: d}}
}

func wantAccepted(t *testing.T, a *answers, d Digest, id string) {
	t.Helper()
	found := a.accepted(d, 0)
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
		if a.accepted(d, 0) != nil {
			t.Errorf("%s: a forgotten key is accepted", name)
		}
		a.accept(d, 0, acceptedAs(d, "from before"))
		if a.accepted(d, 0) != nil {
			t.Errorf("%s: an answer from before is accepted", name)
		}
	}
}
