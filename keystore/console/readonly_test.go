package console_test

import (
	"html"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/scope"
)

// Whoever is ReadOnly sees what an administrator sees, and nothing of what they
// can do, whatever state a key is in.
func TestReadOnly(t *testing.T) {
	for name, change := range map[string]func(*console.Options){
		"who may assign everything":           func(*console.Options) {},
		"who may assign what the option says": assignable(scope.TasksRead, scope.TasksWrite),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testReadOnly(t, change) })
		})
	}
}

func testReadOnly(t *testing.T, change func(*console.Options)) {
	b := newBench(t, change, func(o *console.Options) { o.Networks = true })
	token, plainKey := b.add(t, "acme")
	_, idle := b.add(t, "acme", holding(scope.TasksRead, scope.TasksWrite))
	_, ending := b.add(t, "acme", ending(200*day))
	_, theirs := b.add(t, "other")
	b.child(t, ending, "run 1")
	_, replaced := b.add(t, "acme")
	_, asleep := b.add(t, "acme")
	_, gone := b.add(t, "acme")
	b.suspend(t, asleep)
	b.revoke(t, gone)
	b.use(t, idle, scope.TasksRead)
	b.use(t, replaced)
	time.Sleep(150 * day)
	b.use(t, idle, scope.TasksRead)
	b.use(t, replaced)
	time.Sleep(time.Second)
	next := b.rotate(t, replaced)
	time.Sleep(time.Second)
	b.use(t, next)
	time.Sleep(3 * day)
	held := len(b.all(t, "acme"))
	b.entries = nil
	rea := func(method, path string) reply { return b.do("rea", method, path, valid, ofPage...) }

	seen, left := map[string]bool{}, []string{"/"}
	for len(left) > 0 {
		at := left[0]
		if left = left[1:]; seen[at] {
			continue
		}
		seen[at] = true
		page := rea("GET", at)
		if page.StatusCode != 200 {
			t.Errorf("a page leads to %s: %s", at, page.Status)
		}
		wantNone(t, "a form on "+at, page, `method="post"`)
		for _, m := range linked.FindAllStringSubmatch(page.text, -1) {
			from, err := url.Parse("http://host" + at)
			if err != nil {
				t.Fatal(err)
			}
			to, err := from.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, to.RequestURI())
		}
	}
	for _, k := range []*keystore.Key{plainKey, idle, ending, replaced, asleep, gone} {
		if !seen["/"+k.ID] {
			t.Errorf("no page leads to %s", k.ID)
		}
	}
	if !seen["/audit"] {
		t.Error("no page leads to the audit")
	}
	wantText(t, "the list", rea("GET", "/"), 200, "Rea Only · acme · Read only", "Old one")

	for _, k := range []string{plainKey.ID, idle.ID, ending.ID, replaced.ID, asleep.ID, gone.ID, theirs.ID, "key_none"} {
		for _, act := range []string{"", "/rotate", "/edit", "/revoke", "/suspend", "/resume", "/narrow", "/used", "/none"} {
			wantText(t, "POST "+act, rea("POST", "/"+k+act), 403, "Not yours to change", "change nothing")
			if slices.Contains([]string{"", "/used", "/none"}, act) {
				continue
			}
			want := 403
			if k == theirs.ID || k == "key_none" {
				want = 404
			}
			if got := rea("GET", "/"+k+act); got.StatusCode != want {
				t.Errorf("GET %s of %s: got %s, want %d", act, k, got.Status, want)
			}
		}
	}
	for _, at := range [][2]string{{"GET", "/new"}, {"GET", "/new?like=" + plainKey.ID}, {"HEAD", "/new"},
		{"POST", "/new"}, {"POST", "/"}, {"POST", "/audit"}, {"POST", "/console.css"},
		{"GET", "/" + idle.ID + "/rotate?renew"}} {
		if got := rea(at[0], at[1]); got.StatusCode != 403 {
			t.Errorf("%v: got %s, want 403", at, got.Status)
		}
	}
	b.wantHeld(t, "all those requests", held, 0)
	b.wantStatus(t, "all those requests", token, keystore.Active)
	// Beside what the pages say of it, an administrator can do all of that.
	controls := regexp.MustCompile(`method="post"|/(edit|rotate|suspend|revoke)"|href="[^"]*new\b`)
	for _, at := range []string{"/", "/" + idle.ID, "/" + replaced.ID, "/" + asleep.ID} {
		if !controls.MatchString(b.get(at).text) || controls.MatchString(rea("GET", at).text) {
			t.Errorf("%s: an administrator has no control, or whoever may read has one", at)
		}
	}
	wantText(t, "the page of a replaced key", rea("GET", "/"+replaced.ID), 200, "The replaced key is quiet")
}
