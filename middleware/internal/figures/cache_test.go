package figures_test

import (
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/figures"
)

func TestCache(t *testing.T) {
	var made []figures.Limit
	c := figures.NewCache(2, func(l figures.Limit) *figures.Limit {
		made = append(made, l)
		return &l
	})
	for _, policy := range []string{"a", "b", "a", "c", "d", "c"} {
		c.Get(figures.Limit{Policy: policy, Result: "admitted"})
	}
	want := []string{"a", "b", figures.Other}
	if len(made) != len(want) {
		t.Fatalf("made %v, want one of each of %q", made, want)
	}
	for i, l := range made {
		if l.Policy != want[i] || l.Result != "admitted" {
			t.Errorf("number %d was made for %v, want the policy %q", i, l, want[i])
		}
	}
	if got := *c.Get(figures.Limit{Policy: "e", Result: "admitted"}); got.Policy != figures.Other {
		t.Errorf("a key beyond the room got %v", got)
	}
	known := figures.Limit{Policy: "a", Result: "admitted"}
	if n := testing.AllocsPerRun(100, func() { c.Get(known) }); n != 0 {
		t.Errorf("a look-up of a known key makes %v allocations", n)
	}
}

func TestCacheConcurrent(t *testing.T) {
	c := figures.NewCache(100, func(figures.Response) *int { return new(int) })
	results := make([]*int, 8)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			for status := range 50 {
				c.Get(figures.Response{Status: status})
			}
			results[i] = c.Get(figures.Response{Status: 7})
		})
	}
	all.Wait()
	for _, r := range results {
		if r != results[0] {
			t.Fatal("two things were made for one key")
		}
	}
}
