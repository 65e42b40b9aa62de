package console_test

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// address returns where a link of a list leads, or "".
func address(r reply, text string) string {
	m := regexp.MustCompile(`href="\./(\?[^"]*)"[^>]*>` + text + `<`).FindStringSubmatch(r.text)
	if m == nil {
		return ""
	}
	return "/" + html.UnescapeString(m[1])
}

func TestPagesLeadForthAndBack(t *testing.T) {
	b := newBench(t)
	for i := range 60 {
		b.add(t, "acme", func(g *keystore.Key) { g.Name = fmt.Sprint("key ", i) })
	}
	first := b.get("/")
	wantText(t, "the first page", first, 200, "1–25 of 60 keys")
	second := b.get(address(first, "Older keys"))
	wantText(t, "the second page", second, 200, "26–50 of 60 keys")
	third := b.get(address(second, "Older keys"))
	wantText(t, "the last page", third, 200, "51–60 of 60 keys")
	if address(third, "Older keys") != "" || address(first, "Newer keys") != "" || address(first, "Newest keys") != "" {
		t.Error("a page links beyond the last or the first")
	}
	if back := b.get(address(third, "Newer keys")); !slices.Equal(names(back), names(second)) {
		t.Errorf("back from the last page: got %q, want %q", names(back), names(second))
	}
	if back := b.get(address(second, "Newer keys")); !slices.Equal(names(back), names(first)) {
		t.Errorf("back from the second page: got %q, want %q", names(back), names(first))
	}
}

// An older system may say that a key was made when its calendar begins.
func TestPagesOfOldKeys(t *testing.T) {
	b := newBench(t)
	for i := range 30 {
		if _, err := b.issuer.Import(t.Context(), keystore.Key{Organization: "acme", Name: fmt.Sprint("key ", i),
			Environment: keystore.Production, CreatedAt: time.Date(1601, 1, 1, 0, 0, i, 0, time.UTC),
		}, keystore.Service{}.Generate(keystore.Production).Reveal()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"key 4", "key 3", "key 2", "key 1", "key 0"}
	if got := names(b.get(address(b.get("/"), "Older keys"))); !slices.Equal(got, want) {
		t.Errorf("the second page: got %q, want %q", got, want)
	}
}

// However many keys there are, a page is a few calls, and a search finds each.
func TestTenThousandKeys(t *testing.T) {
	b := newBench(t)
	oldest, k := b.add(t, "acme", func(g *keystore.Key) { g.Name = "the oldest" })
	for i := range 2100 {
		b.add(t, "acme", func(g *keystore.Key) { g.Name = fmt.Sprint("key ", i) })
	}
	lists := 0
	b.store.Before = func(call string) error {
		if call == "List" {
			lists++
		}
		return nil
	}
	wantText(t, "the first page", b.get("/"), 200, "1–25 of 2101 keys")
	if lists > 5 {
		t.Errorf("a page reads the list %d times", lists)
	}
	for _, q := range []string{"the+oldest", k.ID, oldest[len(oldest)-4:]} {
		lists = 0
		got := b.get("/?q=" + q)
		if !slices.Contains(names(got), "the oldest") || lists > 2 {
			t.Errorf("%s: got %q, and the list was read %d times", q, names(got), lists)
		}
	}
	// The way back has an end, and every key is reached.
	at, seen := "/", 0
	for at != "" {
		page := b.get(at)
		seen += len(names(page))
		if at = address(page, "Older keys"); at == "" {
			wantText(t, "the last page", page, 200, "2101–2101 of 2101 keys")
			for range 39 {
				page = b.get(address(page, "Newer keys"))
			}
			wantText(t, "39 pages back", page, 200, "1126–1150 of 2101 keys")
			if address(page, "Newer keys") != "" || address(page, "Newest keys") == "" {
				t.Errorf("a page that does not know what was before it: %s", page.text)
			}
		}
	}
	if seen != 2101 {
		t.Errorf("the pages had %d keys", seen)
	}
}
