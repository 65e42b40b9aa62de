package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func mustCreate(t *testing.T, s taskStore, tenant, title string) task {
	t.Helper()
	made, err := s.Create(t.Context(), tenant, title)
	if err != nil {
		t.Fatalf("Create(%q): %v", title, err)
	}
	return made
}

// pages follows the cursors from the newest task to the oldest.
func pages(t *testing.T, s taskStore, tenant string, size int, between func()) []string {
	t.Helper()
	var titles []string
	var after string
	for {
		page, err := s.List(t.Context(), tenant, after, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > size {
			t.Fatalf("a page of %d holds %d tasks", size, len(page))
		}
		if len(page) == 0 {
			return titles
		}
		if len(titles) > 1000 {
			t.Fatalf("pages of %d do not end: %v …", size, titles[:50])
		}
		for _, task := range page {
			titles = append(titles, task.Title)
		}
		after = page[len(page)-1].ID
		if between != nil {
			between()
		}
	}
}

func TestPagesHoldEachTaskOnceNewestFirst(t *testing.T) {
	// In the bubble the clock stands still, and all tasks are created at the
	// same time.
	synctest.Test(t, func(t *testing.T) {
		var s memoryTasks
		var want []string
		for i := range 25 {
			title := fmt.Sprint(i)
			mustCreate(t, &s, "a", title)
			mustCreate(t, &s, "b", "other "+title)
			want = append(want, title)
		}
		slices.Reverse(want)
		for _, size := range []int{1, 2, 7, 24, 25, 26, 1000} {
			got := pages(t, &s, "a", size, func() { mustCreate(t, &s, "a", "late") })
			got = slices.DeleteFunc(got, func(title string) bool { return title == "late" }) // of an earlier size
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d: got %v, want %v", size, got, want)
			}
		}
	})
}

func TestACursorOfATaskThatIsNotThereKeepsItsPlace(t *testing.T) {
	var s memoryTasks
	first := mustCreate(t, &s, "a", "first")
	between := mustCreate(t, &s, "b", "between")
	mustCreate(t, &s, "a", "last")
	page, err := s.List(t.Context(), "a", between.ID, 10)
	if err != nil || len(page) != 1 || page[0].ID != first.ID {
		t.Errorf("got %v, %v, want the first task alone", page, err)
	}
}

func TestTenantsAreApart(t *testing.T) {
	var s memoryTasks
	made := mustCreate(t, &s, "a", "mine")
	for _, tenant := range []string{"b", ""} {
		if _, err := s.Find(t.Context(), tenant, made.ID); !errors.Is(err, errNoTask) {
			t.Errorf("Find by tenant %q: got %v, want errNoTask", tenant, err)
		}
		if _, err := s.Cancel(t.Context(), tenant, made.ID); !errors.Is(err, errNoTask) {
			t.Errorf("Cancel by tenant %q: got %v, want errNoTask", tenant, err)
		}
		if got := pages(t, &s, tenant, 10, nil); got != nil {
			t.Errorf("List by tenant %q: got %v, want none", tenant, got)
		}
	}
	if got, err := s.Find(t.Context(), "a", made.ID); err != nil || got != made {
		t.Errorf("Find by its own tenant: got %v, %v, want %v", got, err, made)
	}
}

func TestCancellingIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memoryTasks
		made := mustCreate(t, &s, "a", "one")
		var wg sync.WaitGroup
		results := make([]task, 8)
		for i := range results {
			wg.Go(func() { results[i], _ = s.Cancel(t.Context(), "a", made.ID) })
		}
		wg.Wait()
		for _, got := range results {
			if got.State != cancelled || got.CancelledAt.IsZero() || got != results[0] {
				t.Errorf("got %v, want it cancelled, as every other call says", got)
			}
		}
		if got, _ := s.Find(t.Context(), "a", made.ID); got != results[0] {
			t.Errorf("found %v afterwards, want %v", got, results[0])
		}
	})
}
