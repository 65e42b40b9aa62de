package console_test

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestChart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, k := b.add(t, "acme")
		if text := b.get("/" + k.ID).text; strings.Contains(text, "<svg") {
			t.Error("a key that is not observed has a chart")
		}
		for days, requests := range map[int]int64{0: 1_000_000, 27: 250_000, 28: 1, 29: 7} { // from 30 December on
			u := keystore.Use{Organization: "acme", ID: k.ID, At: time.Now().AddDate(0, 0, days-2), Requests: requests}
			if err := b.store.Touch(t.Context(), []keystore.Use{u}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(27*day + time.Hour)
		page := b.get("/" + k.ID)
		wantText(t, "the page", page, 200, "1,250,008 in the last 30 days, 1,000,000 on the busiest day",
			"30 Dec 1999 Today", "Day Requests 28 Jan 2000 7 27 Jan 2000 1 26 Jan 2000 250,000 30 Dec 1999 1,000,000")
		var bars []string
		for _, m := range regexp.MustCompile(`<rect x="(\d+)" y="(\d+)" width="16" height="(\d+)"`).
			FindAllStringSubmatch(page.text, -1) {
			if m[3] != "0" {
				bars = append(bars, strings.Join(m[1:], " "))
			}
		}
		// x, y and height: the first and the last three of thirty bars; the
		// least number can still be seen.
		if got, want := fmt.Sprint(bars), "[0 0 100 540 0 25 560 0 3 580 0 3]"; got != want {
			t.Errorf("got the bars %s, want %s", got, want)
		}
		if strings.Contains(page.text, "style=") {
			t.Error("the page has a style that its policy forbids")
		}
	})
}

// A store that does not know how to find a successor names another key.
type noSuccessors struct{ keystore.Manager }

func (s noSuccessors) List(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
	p.RotatedFrom = ""
	return s.Manager.List(ctx, organization, p)
}

func TestWatchBelievesNoOtherKey(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	b.serve(noSuccessors{b.store.Manager})
	if text := plain(b.get("/" + k.ID)); strings.Contains(text, "eplaced") {
		t.Errorf("a key that was not replaced: %s", text)
	}
}

// A replaced key and its successor link to each other, and both pages tell
// whether the old one is still used.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, old := b.add(t, "acme")
		b.use(t, old)
		time.Sleep(time.Minute)
		secretOf(t, b.post("/"+old.ID+"/rotate", url.Values{"issue_token": {"x"}, "overlap": {"604800"}}))
		next := b.all(t, "acme")[0]
		both := func(what string, texts ...string) {
			t.Helper()
			for _, k := range []*keystore.Key{old, next} {
				page := b.get("/" + k.ID)
				wantText(t, what, page, 200, texts...)
				other := map[string]string{old.ID: next.ID, next.ID: old.ID}[k.ID]
				if !strings.Contains(page.text, `href="./`+other+`"`) {
					t.Errorf("%s: no link to the other key", what)
				}
			}
		}
		both("not used since", "The replaced key is quiet", "Nothing has used it since its successor was made.",
			"It stops working on 8 Jan 2000, 00:01 UTC.", "Revoke the replaced key")
		wantText(t, "the old key", b.get("/"+old.ID), 200, "Replaced by "+b.issuer.Masked(next))
		wantText(t, "the new key", b.get("/"+next.ID), 200, "Replaces "+old.ID)

		time.Sleep(time.Minute)
		u := keystore.Use{Organization: "acme", ID: old.ID, At: time.Now(), From: netip.MustParseAddr("10.2.0.7")}
		if err := b.store.Touch(t.Context(), []keystore.Use{u}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		both("used since", "The replaced key is still in use", "3 minutes ago from 10.2.0.7",
			"Put the new secret in place wherever the old one is still used.")
		time.Sleep(day)
		both("a day later", "The replaced key is quiet", "Nothing has used it for a day.")
		time.Sleep(7 * day)
		for _, k := range []*keystore.Key{old, next} {
			if text := plain(b.get("/" + k.ID)); strings.Contains(text, "The replaced key") {
				t.Errorf("after its end: %s", text)
			}
		}
		wantText(t, "the old key at its end", b.get("/"+old.ID), 200, "This key was replaced, and revoked on 8 Jan 2000",
			"Replaced by "+b.issuer.Masked(next))
	})
}
