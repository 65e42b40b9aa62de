package console_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/console"
)

// The request to try is one that the key can make, and can be copied.
func TestTryIt(t *testing.T) {
	b := newBench(t, func(o *console.Options) { o.BaseURL = "https://api.example.com/api/v1" })
	f := b.form(t)
	got := b.post("/new", f)
	wantText(t, "a key that may read the account", got, 201, "Try it",
		`curl -i -H "Authorization: Bearer $KEY" https://api.example.com/api/v1/account`)
	if !strings.Contains(got.text, `data-copy="try"`) || !strings.Contains(got.text, `<code id="try"`) {
		t.Error("the command has no copy button")
	}
	f = b.form(t)
	f["scopes"] = []string{"chat:read", "chat:write"}
	if got := b.post("/new", f); got.StatusCode != 201 || strings.Contains(plain(got), "Try it") {
		t.Errorf("a key that may not read the account: got %s and a request that is refused", got.Status)
	}
	b = newBench(t)
	if got := b.post("/new", b.form(t)); got.StatusCode != 201 || strings.Contains(plain(got), "Try it") {
		t.Errorf("without a BaseURL: got %s and a request to try", got.Status)
	}
}

// Whoever sends a form again is told to rotate only a key that can be rotated.
func TestReplayOfARevokedKey(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	secretOf(t, b.post("/new", f))
	wantText(t, "a repeat", b.post("/new", f), 200, "Rotate the key: that makes a new secret")
	if _, err := b.issuer.Revoke(t.Context(), "acme", b.all(t, "acme")[0].ID); err != nil {
		t.Fatal(err)
	}
	got := b.post("/new", f)
	wantText(t, "a repeat after the key was revoked", got, 200, "This key cannot be rotated. Create a new one instead.",
		"Show all keys")
	if strings.Contains(got.text, "/rotate") {
		t.Error("the page links to the rotation of a revoked key")
	}
}
