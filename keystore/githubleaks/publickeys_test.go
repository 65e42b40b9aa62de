package githubleaks_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestPublicKeysOfTheExample: nobody can use up GitHub's limit by ids that it
// does not have, and a fetch that fails takes no key away.
func TestPublicKeysOfTheExample(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	var fetches atomic.Int64
	var fails atomic.Bool
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches.Add(1)
		if fails.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"public_keys": []map[string]string{
			{"key_identifier": "known", "key": string(text)}}})
	}))
	defer github.Close()
	p := &publicKeys{url: github.URL}
	left, leave := context.WithCancel(t.Context())
	leave()
	mustHave := func(when string) {
		t.Helper()
		if key, err := p.get(left, "known"); err != nil || !private.PublicKey.Equal(key) {
			t.Errorf("%s: got %v, %v, want the key", when, key, err)
		}
	}
	mustHave("a client that has left")
	for minute := range 60 {
		fails.Store(minute >= 30)
		for i := range 3 {
			if key, err := p.get(t.Context(), fmt.Sprint(minute, i)); key != nil || (err != nil) != (minute >= 30) {
				t.Errorf("minute %d, an id that GitHub does not have: got %v, %v", minute, key, err)
			}
		}
		mustHave(fmt.Sprint("minute ", minute))
		p.asked = p.asked.Add(-time.Minute) // it passes
	}
	if n := fetches.Load(); n > 13 {
		t.Errorf("%d fetches in an hour, want 13 at most", n)
	}
	fails.Store(false)
	p.asked = time.Time{}
	if _, err := p.get(t.Context(), "again"); err != nil {
		t.Errorf("when GitHub answers again: got %v", err)
	}
}
