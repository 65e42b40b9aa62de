package console_test

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestSearch(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme", called("Zürich import"))
	gone, old := b.add(t, "acme", called("Old import"))
	b.revoke(t, old)
	for range 11 { // more than there are behind the fold
		_, k := b.add(t, "acme", called("gone"))
		b.revoke(t, k)
	}
	b.add(t, "acme", called("live wire"))
	b.add(t, "other", called("their import"))
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
		"sort=used":                                       200,
		"sort=expiry":                                     200,
		"sort=name":                                       400,
		"by=" + strings.Repeat("x", 255):                  200,
		"by=" + strings.Repeat("x", 256):                  400,
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

// Somebody who pastes a whole token, also into the audit's filter, is led to
// its key, and the token stays in no address. One of another organization is as
// unknown as one of nobody.
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
		wantSeeOther(t, "a search for a token", got, c.want)
		if strings.Contains(fmt.Sprint(got.Header, got.text), c.token) {
			t.Errorf("the token is in the answer: %v %s", got.Header, got.text)
		}
	}
	wantSeeOther(t, "a filter by a token", b.get("/audit?key="+token), "./"+k.ID)
}

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
	var want []string
	for i := range 60 {
		b.add(t, "acme", called(fmt.Sprint("key ", i)))
		want = append(want, fmt.Sprint("key ", 59-i))
	}
	b.add(t, "other")
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
	if got := slices.Concat(names(first), names(second), names(third)); !slices.Equal(got, want) {
		t.Errorf("got %q, want them in the order they were made, the newest first", got)
	}
	b.add(t, "acme") // a key made between two pages moves nothing
	if got := b.get(address(first, "Older keys")); !slices.Equal(names(got), names(second)) {
		t.Errorf("after another key was made the second page has %q, want %q", names(got), names(second))
	}
	// However many pages there are, an address has the way back over 40 of them.
	q, err := url.ParseQuery(strings.TrimPrefix(address(first, "Older keys"), "/?"))
	if err != nil {
		t.Fatal(err)
	}
	far := "/?begin=1000" + strings.Repeat("&after="+url.QueryEscape(q.Get("after")), 40)
	page := b.get(address(b.get(far), "Older keys"))
	wantText(t, "a page behind 41 others", page, 200, "1026–1035 of 1035 keys")
	for range 39 {
		page = b.get(address(page, "Newer keys"))
	}
	wantText(t, "39 pages back", page, 200, "51–75 of 85 keys")
	if address(page, "Newer keys") != "" || address(page, "Newest keys") == "" {
		t.Errorf("a page that does not know what was before it: %s", page.text)
	}
}

// Whoever made keys can be asked for, by an address that keeps the rest of what is
// asked for. People are named by what they made: an address may have any id.
func TestCreatedBy(t *testing.T) {
	b := newBench(t, func(o *console.Options) {
		o.PersonName = func(_ context.Context, _, id string) string { return map[string]string{"bea": "Bea <Cole>"}[id] }
	})
	for _, by := range []string{"ada", "bea", "x&y=z", "bea"} {
		for i := range 20 {
			b.addBy(t, by, "acme", called(fmt.Sprint("by ", by, " ", i)))
		}
	}
	_, gone := b.addBy(t, "bea", "acme", called("by bea, ended"))
	b.revoke(t, gone)
	b.addBy(t, "oda", "other")
	first := b.get("/")
	bea := address(first, "Bea &lt;Cole&gt;")
	if bea != "/?by=bea" {
		t.Errorf("the row of a key leads to %q, want the keys of who made it", bea)
	}
	page := b.get(bea)
	wantText(t, "the keys of bea", page, 200, "1–25 of 40 keys", "by bea, ended")
	wantHTML(t, "the filter does not say whose keys these are", page,
		`<option value="bea" selected>By Bea &lt;Cole&gt;</option>`)
	next := b.get(address(page, "Older keys"))
	wantText(t, "the next page", next, 200, "26–40 of 40 keys")
	for _, name := range slices.Concat(names(page), names(next)) {
		if !strings.HasPrefix(name, "by bea") {
			t.Errorf("the keys of bea have %q", name)
		}
	}
	odd := address(b.get(address(first, "Older keys")), "x&amp;y=z")
	wantText(t, "an id that is no part of an address", b.get(odd), 200, "20 keys", "By x&y=z")
	wantHTML(t, "the filter does not say that these are mine", b.get("/?by=ada"),
		`<option value="ada" selected>By you</option>`)
	none := b.do("oda", "GET", "/?by=bea", "")
	wantText(t, "in another organization", none, 200, "No such keys", "By bea")
	wantNone(t, "an address names a person of another organization", none, "Cole")
	wantText(t, "with another filter", b.get("/?by=bea&environment=sandbox"), 200, "No such keys")
}

// By last use and by expiry each key is on one page, also where many have the
// same time or none, and where a use is told to the nanosecond.
func TestOrders(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		at := time.Now().Add(30 * day)
		var names60 []string
		keys := make(map[string]*keystore.Key)
		for i := range 60 {
			name := fmt.Sprintf("key %02d", i)
			_, k := b.add(t, "acme", func(g *keystore.Key) {
				if g.Name = name; i%2 == 0 {
					g.ExpiresAt = at.Add(time.Duration(i/20) * day)
				}
			})
			if i%3 > 0 {
				b.record(t, k, keystore.Use{At: time.Now().Add(time.Duration(i))})
			}
			names60, keys[name] = append(names60, name), b.key(t, k.ID)
		}
		for sort, text := range map[issuing.Order]string{issuing.ByLastUse: "Never used", issuing.ByExpiry: "30 Jan 2000"} {
			want := slices.SortedFunc(slices.Values(names60), func(x, y string) int {
				return cmp.Or(sort.At(keys[x]).Compare(sort.At(keys[y])), cmp.Compare(keys[x].ID, keys[y].ID))
			})
			var got []string
			for at := "/?sort=" + string(sort); at != "" && len(got) <= len(want); {
				page := b.get(at)
				got = append(got, names(page)...)
				wantHTML(t, "the page does not say how it is sorted", page, `<option value="`+string(sort)+`" selected>`)
				if len(got) == 25 {
					wantText(t, "the first page", page, 200, text)
				} else if back := address(page, "Previous keys"); !strings.Contains(back, "sort="+string(sort)) {
					t.Errorf("%s: the way back is %q", sort, back)
				}
				at = address(page, "Next keys")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", sort, got, want)
			}
		}
		wantText(t, "no keys at all", b.do("oda", "GET", "/?sort=used", ""), 200, "No keys yet")
	})
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
