package console_test

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"testing"

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

// However many keys there are, a request reads a bounded number, and says what
// it left out.
func TestTenThousandKeys(t *testing.T) {
	b := newBench(t)
	for i := range 2100 {
		b.add(t, "acme", func(g *keystore.Key) { g.Name = fmt.Sprint("key ", i) })
	}
	lists := 0
	b.store.list = func() error { lists++; return nil }
	first := b.get("/")
	wantText(t, "the first page", first, 200, "1–25 of more than 1000 keys")
	if lists > 20 {
		t.Errorf("a page reads the list %d times", lists)
	}
	got := b.get("/?q=key+99")
	wantText(t, "a search among the newest keys", got, 200, "No such keys")
	for range 2 { // "key 990" and others are in the second part
		wantText(t, "a search", got, 200, "1,000 keys were looked at.")
		got = b.get(address(got, "Look at older ones"))
	}
	if want := []string{"key 99"}; !slices.Equal(names(got), want) {
		t.Errorf("among the oldest keys: got %q, want %q", names(got), want)
	}
	if address(got, "Newest keys") != "/?q=key+99" {
		t.Errorf("no way back to the newest keys: %s", plain(got))
	}
}
