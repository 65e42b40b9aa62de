package console_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// The page of a secret waits for its first use, and says when that has come.
func TestFirstUse(t *testing.T) {
	b := newBench(t)
	got := b.post("/new", b.form(t))
	k := b.all(t, "acme")[0]
	wantText(t, "the secret", got, 201, "No request with this key so far.", "Check again")
	if !strings.Contains(got.text, `data-wait="./`+k.ID+`/used"`) {
		t.Error("the script is not told where to ask")
	}
	wantText(t, "before", b.get("/"+k.ID+"/used"), 200, "No request with this key so far.", "Check again")
	b.record(t, k, keystore.Use{At: time.Now(), Requests: 1, From: netip.MustParseAddr("192.0.2.7")})
	got = b.get("/" + k.ID + "/used")
	wantText(t, "after", got, 200, "It works: the key was used just now", "from 192.0.2.7")
	if !strings.Contains(got.text, `class="used done"`) || strings.Contains(got.text, "Check again") {
		t.Errorf("after the first use the page waits on:\n%s", got.text)
	}
	wantText(t, "of another organization", b.do("oda", "GET", "/"+k.ID+"/used", ""), 404)
	wantText(t, "a POST", b.post("/"+k.ID+"/used", nil), 405)
}

// Whoever sends a form again is told to rotate only a key that can be rotated.
func TestReplayOfARevokedKey(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	secretOf(t, b.post("/new", f))
	wantText(t, "a repeat", b.post("/new", f), 200, "Rotate the key: that makes a new secret")
	b.revoke(t, b.all(t, "acme")[0])
	got := b.post("/new", f)
	wantText(t, "a repeat after the key was revoked", got, 200, "This key cannot be rotated. Create a new one instead.",
		"Show all keys")
	if strings.Contains(got.text, "/rotate") {
		t.Error("the page links to the rotation of a revoked key")
	}
}
