package console_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestSearch(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme", func(g *keystore.Key) { g.Name = "Zürich import" })
	gone, old := b.add(t, "acme", func(g *keystore.Key) { g.Name = "Old import" })
	b.revoke(t, old)
	for range 11 { // more than there are behind the fold
		_, k := b.add(t, "acme", func(g *keystore.Key) { g.Name = "gone" })
		b.revoke(t, k)
	}
	b.add(t, "acme", func(g *keystore.Key) { g.Name = "live wire" })
	b.add(t, "other", func(g *keystore.Key) { g.Name = "their import" })
	for q, want := range map[string][]string{
		"zÜRich":                            {"Zürich import"},
		"import":                            {"Zürich import", "Old import"},
		k.ID:                                {"Zürich import"},
		" " + token[len(token)-4:]:          {"Zürich import"},
		gone[len(gone)-4:]:                  {"Old import"},
		"svc_live_…" + token[len(token)-4:]: {"Zürich import"},
		"live":                              {"live wire"}, // and not every key whose token has the word
		"%":                                 nil,
	} {
		if got := names(b.get("/?q=" + url.QueryEscape(q))); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", q, got, want)
		}
	}
	got := b.get("/?q=%25&status=revoked")
	wantText(t, "nothing found", got, 200, "No key matches “%”.", "Show all live keys")
	// Each key is compared with what is searched.
	// So what is searched is bounded.
	for query, status := range map[string]int{
		"q=" + strings.Repeat("x", 800):                   200,
		"q=" + strings.Repeat("x", 801):                   400,
		"begin=25" + strings.Repeat("&after=0.key_x", 40): 200,
		"begin=25" + strings.Repeat("&after=0.key_x", 41): 400,
		"begin=25&after=1xb3m9wqsqnz.key_x":               200, // the last microsecond of the year 9999
		"begin=25&after=1xb3m9wqsqo0.key_x":               400,
		"begin=25&after=-gzt8b3t5hc0.key_x":               200, // the first of the year 1
		"begin=25&after=-gzt8b3t5hc1.key_x":               400,
		"begin=0":                                         200,
		"begin=-1":                                        400,
		"begin=x":                                         400,
	} {
		if got := b.get("/?" + query); got.StatusCode != status ||
			(status == 400) != strings.Contains(plain(got), "The list has no page at this address.") {
			t.Errorf("%.40s: got %s, want %d", query, got.Status, status)
		}
	}
}

// Somebody who pastes a whole token is led to its key, and the token stays in no
// address. One of another organization is as unknown as one of nobody.
func TestSearchForAToken(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	theirs, _ := b.add(t, "other")
	none := keystore.Service{}.Generate(keystore.Production).Reveal()
	for _, c := range []struct{ token, want string }{
		{token, "./" + k.ID},
		{theirs, "./?environment=production&q=" + theirs[len(theirs)-4:]},
		{none, "./?environment=production&q=" + none[len(none)-4:]},
	} {
		got := b.get("/?environment=production&q=" + c.token)
		if got.StatusCode != 303 || got.Header.Get("Location") != c.want ||
			strings.Contains(fmt.Sprint(got.Header, got.text), c.token) {
			t.Errorf("got %s to %q, want %q", got.Status, got.Header.Get("Location"), c.want)
		}
	}
}
