package console_test

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestRotateAtOnce(t *testing.T) {
	b := newBench(t)
	old, k := b.add(t, "acme")
	b.wantStatus(t, "the old key", old, keystore.Active)
	path := "/" + k.ID + "/rotate"
	f := url.Values{"issue_token": {tokenOf(t, b.get(path))}, "overlap": {"0"}}
	got := b.post(path, f)
	token := secretOf(t, got)
	wantText(t, "the new secret", got, 201, "The old secret does not work any more.")
	b.wantStatus(t, "the old key", old, keystore.Revoked)
	b.wantStatus(t, "the new key", token, keystore.Active)
	next := b.all(t, "acme")[0]
	if next.Name != k.Name || next.Environment != k.Environment || next.RotatedFrom != k.ID ||
		next.Scopes[0] != k.Scopes[0] {
		t.Errorf("got %+v", next)
	}
	b.wantActs(t, "rotate "+next.ID+" by ada: ", "revoke "+k.ID+" by ada: rotated")
	got = b.post(path, f)
	wantText(t, "a refresh", got, 200, "cannot be shown again")
	if b.wantHeld(t, "a refresh", 2, 2); secretShape.MatchString(got.text) {
		t.Error("a refresh shows a secret")
	}
	f.Set("issue_token", "another")
	wantText(t, "a revoked key", b.post(path, f), 409, "This key is revoked")
	wantText(t, "its form", b.get(path), 409, "This key is revoked")
}

// The old secret works as long as was chosen, or as the key was to anyhow.
func TestRotateWithOverlap(t *testing.T) {
	for life, ends := range map[time.Duration]string{
		30 * day: "2 Jan 2000, 00:00 UTC", time.Hour: "1 Jan 2000, 01:00 UTC",
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			old, k := b.add(t, "acme", ending(life))
			got := b.post("/"+k.ID+"/rotate", url.Values{"issue_token": {"x"}, "overlap": {"86400"}})
			token := secretOf(t, got)
			wantText(t, "the new secret", got, 201, "The old secret works until "+ends+".")
			wantText(t, "the old key", b.get("/"+k.ID), 200, "The replaced key may", "stops working on "+ends, "Expires "+ends)
			b.wantStatus(t, "the old key", old, keystore.Active)
			b.wantStatus(t, "the new key", token, keystore.Active)
			time.Sleep(min(life, day))
			if b.status(t, old) == keystore.Active || life > day && b.status(t, token) != keystore.Active {
				t.Error("the old one works after the overlap, or the new one does not")
			}
		})
	}
}

// Two administrators rotate one key: the second one is told what to do.
func TestRotateTwice(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	path := "/" + k.ID + "/rotate"
	secretOf(t, b.post(path, url.Values{"issue_token": {"ada"}, "overlap": {"3600"}}))
	form := url.Values{"issue_token": {"bea"}, "overlap": {"3600"}}.Encode()
	got := b.do("bea", "POST", path, form, ofPage...)
	wantText(t, "a second rotation", got, 409, "This key was rotated before", "has a successor already",
		"create a new key")
	b.wantHeld(t, "two rotations", 2, 2) // those of the first one
}

func TestRotationsThatAreNotValid(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	path := "/" + k.ID + "/rotate"
	for _, overlap := range []string{"", "-1", "2592001", "9223372036854775807", "soon"} {
		f := url.Values{"issue_token": {"x"}, "overlap": {overlap}}
		wantText(t, overlap, b.post(path, f), 422, "Choose when the old secret stops working")
	}
	again := b.post(path, url.Values{"overlap": {"0"}})
	wantText(t, "no token", again, 422, "The form arrived incomplete.")
	tokenOf(t, again)
	b.wantHeld(t, "forms that are not valid", 1, 0)
	b.wantStatus(t, "forms that are not valid", token, keystore.Active)
}

// An issuer that refuses an overlap says so on the form, which is sent again
// without one.
func TestRotateWithTooManyOverlaps(t *testing.T) {
	b := newBench(t)
	_, first := b.add(t, "acme")
	_, k := b.add(t, "acme")
	b.mount(issuing.Options{MaxKeys: 1})
	form := url.Values{"issue_token": {"x"}, "overlap": {"3600"}}
	secretOf(t, b.post("/"+first.ID+"/rotate", form))
	form.Set("issue_token", "y")
	got := b.post("/"+k.ID+"/rotate", form)
	wantText(t, "an overlap", got, 422, "Rotate “Old one”",
		"still work, 1, is reached. Revoke one, or end this one at once")
	wantHTML(t, "the form is another one", got, `name="issue_token" value="y"`, `value="3600" checked`)
	form.Set("overlap", "0")
	secretOf(t, b.post("/"+k.ID+"/rotate", form))
}

// A token that made another key rotates nothing.
func TestRotateWithTheTokenOfAnotherForm(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	created := b.form(t)
	secretOf(t, b.post("/new", created))
	for name, token := range map[string]string{"a creation": created.Get("issue_token"), "a rotation": "x"} {
		if name == "a rotation" {
			_, other := b.add(t, "acme")
			secretOf(t, b.post("/"+other.ID+"/rotate", url.Values{"issue_token": {token}, "overlap": {"0"}}))
		}
		got := b.post("/"+k.ID+"/rotate", url.Values{"issue_token": {token}, "overlap": {"0"}})
		wantText(t, name, got, 422, "This form has been used for something else. Nothing was changed.")
	}
	b.wantStatus(t, "forms of other keys", token, keystore.Active)
}

// The new key works by then, and whoever is not shown its secret can never get
// it.
func TestTheNewSecretIsShownWhenTheOldKeyCannotBeRevoked(t *testing.T) {
	b := newBench(t)
	old, k := b.add(t, "acme")
	b.store.Before = faulty.At("Update", errors.New("disk on fire"))
	f := url.Values{"issue_token": {"x"}, "overlap": {"0"}}
	got := b.post("/"+k.ID+"/rotate", f)
	token := secretOf(t, got)
	wantText(t, "the page", got, 201, "The old key could not be revoked, and still works.")
	b.wantStatus(t, "the old key", old, keystore.Active)
	b.wantStatus(t, "the new key", token, keystore.Active)
	if !strings.Contains(b.log.String(), "disk on fire") {
		t.Errorf("got the log %s", b.log)
	}
	wantText(t, "a repeat that cannot either", b.post("/"+k.ID+"/rotate", f), 503, "Try again in a moment")
	b.store.Before = nil
	for range 2 { // the repeat ends the old key, which is an act of its own
		wantText(t, "the repeat", b.post("/"+k.ID+"/rotate", f), 200, "cannot be shown again")
	}
	b.wantStatus(t, "the old key", old, keystore.Revoked)
	b.wantActs(t, "rotate "+b.all(t, "acme")[0].ID+" by ada: ", "revoke "+k.ID+" by ada: rotated")
}

func TestAssignable(t *testing.T) {
	b := newBench(t, func(o *console.Options) {
		o.Assignable = func(a console.Actor, e keystore.Environment) []scope.Name {
			switch {
			case a.ID != "ada":
				return nil
			case e == keystore.Sandbox:
				return []scope.Name{scope.TasksRead, scope.TasksWrite}
			}
			return []scope.Name{scope.TasksRead}
		}
	})
	_, mine := b.add(t, "acme")
	token, beyond := b.add(t, "acme", holding(scope.TasksRead, scope.WebhooksWrite))
	f := url.Values{"issue_token": {"x"}, "overlap": {"0"}}
	// Rotating hands out a secret with all the scopes of the key.
	wantText(t, "a key with more", b.post("/"+beyond.ID+"/rotate", f), 403, "scopes that you may not assign")
	wantText(t, "its form", b.get("/"+beyond.ID+"/rotate"), 403, "scopes that you may not assign")
	wantNone(t, "the page offers to rotate it", b.get("/"+beyond.ID), `/rotate"`)
	secretOf(t, b.post("/"+mine.ID+"/rotate", f))
	wantText(t, "revoking a key with more", b.post("/"+beyond.ID+"/revoke", nil), 303)
	b.wantStatus(t, "a key with more", token, keystore.Revoked)

	bea := func(method, path string) reply {
		return b.do("bea", method, path, f.Encode(), append(ofForm, "Accept", "text/html")...)
	}
	_, bare := b.add(t, "acme", holding())
	wantText(t, "bea's form", bea("GET", "/new"), 403, "There is no scope that you may assign")
	wantText(t, "bea's rotation of a key without scopes", bea("POST", "/"+bare.ID+"/rotate"), 403)
	wantNone(t, "bea is offered to create a key", bea("GET", "/"), "Create API key")
}

func TestRevoke(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	path := "/" + k.ID + "/revoke"
	wantText(t, "the question", b.get(path), 200, "Revoke “Old one”?", "cannot be taken back", "Keep it")
	b.wantStatus(t, "asking", token, keystore.Active)
	for range 2 {
		wantSeeOther(t, "revoke", b.post(path, url.Values{"reason": {"leaked"}}), "../"+k.ID)
	}
	b.wantStatus(t, "revoke", token, keystore.Revoked)
	_, other := b.add(t, "acme") // which an administrator cannot make look rotated
	b.post("/"+other.ID+"/revoke", url.Values{"reason": {"made up"}, "note": {" rotated "}})
	_, third := b.add(t, "acme")
	path3 := "/" + third.ID + "/revoke"
	wantText(t, "a long reason", b.post(path3, url.Values{"note": {strings.Repeat("ä", 128)}}), 422,
		"Nothing was changed. The reason is longer than 255 bytes.")
	b.post(path3, url.Values{"reason": {"other"}, "note": {" the contract ended "}})
	// What a browser lets through is not refused, whatever the script.
	_, fourth := b.add(t, "acme")
	for _, act := range []string{"/suspend", "/revoke"} {
		longest := regexp.MustCompile(`name="note" type="text" maxlength="(\d+)"`).
			FindStringSubmatch(b.get("/" + fourth.ID + act).text)
		n, _ := strconv.Atoi(longest[1])
		wantText(t, act, b.post("/"+fourth.ID+act, url.Values{"note": {strings.Repeat("鍵", n)}}), 303)
	}
	b.entries = b.entries[:3]
	b.wantActs(t, "revoke "+k.ID+" by ada: leaked", "revoke "+other.ID+" by ada: other",
		"revoke "+third.ID+" by ada: the contract ended")
	wantText(t, "the question about a revoked key", b.get(path), 303)
}

// A key that ends can be renewed: the form proposes the life that it had, and
// shows again what was chosen when the issuer refuses it.
func TestRenew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.mount(issuing.Options{MaxLife: 100 * day})
		_, k := b.add(t, "acme", ending(90*day-time.Hour))
		_, forever := b.add(t, "acme")
		path := "/" + k.ID + "/rotate"
		wantHTML(t, "a key that ends cannot be renewed", b.get("/"+k.ID), `rotate?renew"`)
		wantNone(t, "one that never ends can be renewed", b.get("/"+forever.ID), `rotate?renew"`)
		time.Sleep(80 * day)
		form := b.get(path + "?renew")
		wantText(t, "the form", form, 200, "Renew “Old one”", "As now: 30 Mar 2000")
		wantHTML(t, "the form proposes another end", form, `value="90" selected`)
		wantHTML(t, "the form proposes another end", b.get(path), `value="same" selected`)
		f := url.Values{"issue_token": {"x"}, "overlap": {"86400"}, "expiry": {"365"}}
		got := b.post(path, f)
		wantText(t, "beyond the limit", got, 422, "Nothing was changed. The key must expire within 100 days.")
		wantHTML(t, "the form has lost what was chosen", got, `value="365" selected`)
		b.wantHeld(t, "a form that is refused", 2, 0)
		f.Set("expiry", "date")
		wantText(t, "no date", b.post(path, f), 422, "Fill in the last day")
		f.Set("expires_on", "2000-05-31")
		f.Set("expiry", "same")
		wantText(t, "a date that is not chosen", b.post(path, f), 422, "A date is filled in.")
		f.Set("expiry", "date")
		secretOf(t, b.post(path, f))
		if next := b.all(t, "acme")[0]; next.RotatedFrom != k.ID ||
			!next.ExpiresAt.Equal(time.Date(2000, 6, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("got %+v", next)
		}
		// A form from before the choice was there.
		secretOf(t, b.post("/"+forever.ID+"/rotate", url.Values{"issue_token": {"y"}, "overlap": {"0"}}))
	})
}
