package console_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestChart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme")
		wantNone(t, "a key that is not observed has a chart", b.get("/"+k.ID), "<svg")
		for days, requests := range map[int]int64{0: 1_000_000, 27: 250_000, 28: 1, 29: 7} { // from 30 December on
			b.record(t, k, keystore.Use{At: time.Now().AddDate(0, 0, days-2), Requests: requests})
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
		wantNone(t, "the page has a style that its policy forbids", page, "style=")
	})
}

// rotate replaces a key by the form of its page, and returns the successor.
func (b *bench) rotate(t *testing.T, old *keystore.Key) *keystore.Key {
	t.Helper()
	secretOf(t, b.post("/"+old.ID+"/rotate", url.Values{"issue_token": {"x"}, "overlap": {"604800"}}))
	return b.all(t, "acme")[0]
}

// A replaced key and its successor link to each other, and both pages tell
// whether the old one is still used.
func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, old := b.add(t, "acme")
		b.use(t, old)
		time.Sleep(time.Minute)
		next := b.rotate(t, old)
		both := func(what string, texts ...string) {
			t.Helper()
			for _, k := range []*keystore.Key{old, next} {
				page := b.get("/" + k.ID)
				wantText(t, what, page, 200, texts...)
				other := map[string]string{old.ID: next.ID, next.ID: old.ID}[k.ID]
				wantHTML(t, what+": no link to the other key", page, `href="./`+other+`"`)
				wantShown(t, what, page, what == "quiet", "Revoke the replaced key")
			}
		}
		both("not used since", "The replaced key may still be in use It has not been seen in use since it was replaced.",
			"It stops working on 8 Jan 2000, 00:01 UTC.", "The new key has not been seen in use yet.",
			"Put the new secret in place wherever the old one is still used.")
		wantText(t, "the old key", b.get("/"+old.ID), 200, "Replaced by "+b.issuer.Service().Masked(next))
		wantText(t, "the new key", b.get("/"+next.ID), 200, "Replaces "+b.issuer.Service().Masked(old))

		time.Sleep(day)
		b.record(t, old, keystore.Use{At: time.Now(), Requests: 1, From: netip.MustParseAddr("10.2.0.7")})
		time.Sleep(3 * time.Minute)
		both("used since", "The replaced key is still in use It was used after it was replaced.",
			"Until 2 Jan 2000 it was used every day.", "3 minutes ago from 10.2.0.7",
			"Put the new secret in place wherever the old one is still used.")
		b.use(t, next)
		both("used too", "The replaced key is still in use", "The new key has been used.", "Put the new secret in place")
		time.Sleep(2*day + time.Hour)
		both("quiet", "The replaced key is quiet Until 2 Jan 2000 it was used every day.", "The new key has been used.",
			"The old one can be revoked now.")
		time.Sleep(7 * day)
		for _, k := range []*keystore.Key{old, next} {
			wantNone(t, "after its end", b.get("/"+k.ID), "The replaced key")
		}
		wantText(t, "the old key at its end", b.get("/"+old.ID), 200, "This key was replaced, and revoked on 8 Jan 2000",
			"Replaced by "+b.issuer.Service().Masked(next))
	})
}

// TestQuiet: a page advises to revoke a replaced key only when the key was not
// used for longer than it ever is, as far as the store knows.
func TestQuiet(t *testing.T) {
	const (
		hour, minute = time.Hour, time.Minute
		open, used   = "may still be in use", "is still in use"
	)
	type step struct {
		at   time.Duration // since the old key was made, at midnight
		what string        // "old", "new": is used; "unobserved": old is, without a day; "rotate"; or what is said
	}
	nights := func(from, to, every int) (steps []step) {
		for d := from; d <= to; d += every {
			steps = append(steps, step{time.Duration(d)*day + 2*hour, "old"})
		}
		return steps
	}
	for _, row := range []struct {
		name     string
		dateless bool // the store keeps only when a key was last used
		before   []step
		then     []step
	}{
		{"never used", false, nil, []step{{hour, "rotate"}, {hour, open}, {3 * day, open},
			{3 * day, "new"}, {3*day + minute, "quiet"}}},
		{"never used, and young", false, nil, []step{{hour, "rotate"}, {2 * hour, "new"}, {2*day + 59*minute, open},
			{2*day + 61*minute, "quiet"}}},
		{"every night", false, nights(0, 20, 1), []step{{20*day + 10*hour, "rotate"}, {20*day + 10*hour, open},
			{20*day + 11*hour, "new"}, {20*day + 13*hour, open}, {21*day + 1*hour, open}, {21*day + 23*hour, open},
			{22*day + 59*minute, open}, {22*day + 61*minute, "quiet"}}},
		{"every night, and on", false, nights(0, 20, 1), []step{{20*day + 10*hour, "rotate"}, {20*day + 11*hour, "new"},
			{21*day + 2*hour, "old"}, {22*day + 1*hour, used}, {22*day + 2*hour, "old"}, {23*day + 23*hour, used},
			{24*day + 2*hour, "quiet"}}},
		{"every week", false, nights(0, 21, 7), []step{{26 * day, "rotate"}, {27 * day, "new"}, {27*day + 2*hour, open},
			{28*day + 1*hour, open}, {28*day + 23*hour, open}, {29*day + 2*hour, "quiet"}}},
		{"every month", false, nights(0, 93, 31), []step{{100 * day, "rotate"}, {106 * day, open}}},
		{"every month, twice", false, append(nights(0, 62, 31), nights(93, 94, 1)...), []step{{100 * day, "rotate"},
			{106 * day, open}}},
		{"every night until two days ago", false, nights(0, 20, 1), []step{{22*day + 3*hour, "rotate"},
			{22*day + 3*hour + time.Second, open}, {22*day + 3*hour + 59*minute, open}, {22*day + 5*hour, "quiet"}}},
		{"every night for long", false, nights(0, 50, 1), []step{{52*day + 3*hour, "rotate"}, {52*day + 5*hour, "quiet"}}},
		{"some uses unobserved", false, nights(0, 17, 1), []step{{20 * day, "unobserved"}, {21 * day, "rotate"},
			{22 * day, "new"}, {23*day + 23*hour, open}, {24*day + 2*hour, "quiet"}}},
		{"every week after a pause", false, append(nights(0, 0, 1), nights(23, 37, 7)...), []step{{40 * day, "rotate"},
			{45*day + 30*minute, open}, {45*day + 2*hour, "quiet"}}},
		{"every week after a longer pause", false, append(nights(0, 0, 1), nights(24, 30, 6)...), []step{
			{37*day + 2*hour, "old"}, {40 * day, "rotate"}, {45*day + 2*hour, open + " It has not been seen in use since " +
				"it was replaced. It stops working"}}},
		{"no successor used", false, nights(0, 0, 1), []step{{2*day + 3*hour, "rotate"}, {8 * day, open},
			{8 * day, "new"}, {8*day + minute, "quiet"}}},
		{"used after its successor", false, nights(0, 0, 1), []step{{1 * day, "rotate"}, {1*day + hour, "new"},
			{1*day + 2*hour, "old"}, {1*day + 9*hour, used}}},
		{"no days", true, nights(0, 20, 1), []step{{22*day + 3*hour, "rotate"}, {28 * day, open},
			{28 * day, "new"}, {28*day + minute, "quiet"}}},
		{"no days, every night", true, nights(0, 20, 1), []step{{20*day + 10*hour, "rotate"}, {20*day + 11*hour, "new"},
			{21*day + 23*hour, open}, {22*day + 2*hour, "quiet"}}},
		{"no days, used after its successor", true, nights(0, 20, 1), []step{{20*day + 10*hour, "rotate"},
			{20*day + 11*hour, "new"}, {20*day + 12*hour, "old"}, {25 * day, used}, {25 * day, "new"},
			{25*day + minute, "quiet"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				_, old := b.add(t, "acme")
				keys, begin := map[string]*keystore.Key{"old": old}, time.Now()
				for _, s := range append(row.before, row.then...) {
					time.Sleep(time.Until(begin.Add(s.at)))
					switch k := keys[s.what]; {
					case k != nil && !row.dateless:
						b.use(t, k)
					case k != nil, s.what == "unobserved":
						b.record(t, cmp.Or(k, old), keystore.Use{At: time.Now()})
					case s.what == "rotate":
						keys["new"] = b.rotate(t, old)
					default:
						want := map[string]string{"quiet": "The replaced key is quiet"}[s.what]
						wantText(t, fmt.Sprint("after ", s.at), b.get("/"+old.ID), 200, cmp.Or(want, "The replaced key "+s.what))
					}
				}
			})
		})
	}
}

func TestRefusedRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme")
		wantNone(t, "a key that was never refused has refused requests", b.get("/"+k.ID), "Refused requests")
		b.record(t, k, keystore.Use{Refused: keystore.Refusal{At: time.Now(), Code: "rate_limited"}})
		time.Sleep(time.Minute)
		b.record(t, k, keystore.Use{Refused: keystore.Refusal{At: time.Now(), Code: "insufficient_scope", Route: "GET /<b>"}})
		time.Sleep(time.Minute)
		page := b.get("/" + k.ID)
		wantText(t, "the page", page, 200, "Refused requests 1 minute ago insufficient_scope GET /<b> "+
			"2 minutes ago rate_limited One of each code.")
		if strings.Contains(page.text, "GET /<b>") {
			t.Errorf("a route is markup: %s", page.text)
		}
	})
}
