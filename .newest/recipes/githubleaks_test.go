package recipes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// leaks is the recipe before a GitHub that signs.
type leaks struct {
	GitHubLeaks
	t       *testing.T
	private *ecdsa.PrivateKey
	fetches int
	away    bool
	broken  string // the id of a key that the store cannot write
	log     bytes.Buffer
}

type leakStore struct {
	issuing.Store
	*leaks
}

func (s leakStore) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	if k.ID == s.broken {
		return errors.New("the disk is full")
	}
	return s.Store.Update(ctx, k, e)
}

func newLeaks(t *testing.T) *leaks {
	l := &leaks{t: t}
	var err error
	if l.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&l.private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.fetches++
		if l.away {
			http.Error(w, `{"message":"rate limit exceeded"}`, http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"public_keys": []any{
			map[string]any{"key_identifier": "no PEM", "key": "-", "is_current": false},
			map[string]any{"key_identifier": "current", "key": public, "is_current": true}}})
	}))
	t.Cleanup(github.Close)
	l.URL, l.Issuer = github.URL, issuing.New(leakStore{issuing.NewMemory(), l}, issuing.Options{})
	given, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(&l.log, nil)))
	t.Cleanup(func() {
		slog.SetDefault(given)
		log.SetOutput(writer) // which SetDefault changes, and does not change back
		log.SetFlags(flags)
	})
	return l
}

func (l *leaks) issue() (string, *keystore.Key) {
	l.t.Helper()
	secret, k, err := l.Issuer.Issue(l.t.Context(), keystore.Key{Organization: "org_1", Environment: keystore.Production})
	if err != nil {
		l.t.Fatal(err)
	}
	return secret.Reveal(), k
}

func (l *leaks) revoked(k *keystore.Key) bool {
	l.t.Helper()
	k, err := l.Issuer.Key(l.t.Context(), "org_1", k.ID)
	if err != nil {
		l.t.Fatal(err)
	}
	return errors.Is(k.Refused(), keystore.ErrRevoked)
}

// message is a body as GitHub makes it, with a match for each token.
func message(tokens ...string) string {
	var matches []map[string]string
	for _, token := range tokens {
		matches = append(matches, map[string]string{"token": token, "type": "svc_api_key", "source": "commit",
			"url": "https://github.com/acme/shop/blob/1/.env"})
	}
	body, _ := json.Marshal(matches)
	return string(body)
}

func (l *leaks) sign(body string) string {
	digest := sha256.Sum256([]byte(body))
	signature, err := ecdsa.SignASN1(rand.Reader, l.private, digest[:])
	if err != nil {
		l.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

// post sends a body by a client that has left already.
func (l *leaks) post(id, signature, body string) *httptest.ResponseRecorder {
	ctx, leave := context.WithCancel(l.t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, "POST", "/github/leaks", strings.NewReader(body))
	r.Header.Set("Github-Public-Key-Identifier", id)
	r.Header.Set("Github-Public-Key-Signature", signature)
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// Keys are revoked, each token gets its label, and the log has no token.
func TestGitHubLeaks(t *testing.T) {
	l := newLeaks(t)
	token, k := l.issue()
	old, oldKey := l.issue()
	_, other := l.issue()
	if _, err := l.Issuer.Revoke(t.Context(), "org_1", oldKey.ID); err != nil {
		t.Fatal(err)
	}
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	tokens := []string{token, old, unknown, "svc_live_EXAMPLE", "", token}
	body := message(tokens...)
	w := l.post("current", l.sign(body), body)
	var got []map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	var labels []string
	for i, g := range got {
		if len(g) != 3 || g["token_raw"] != tokens[i] || g["token_type"] != "svc_api_key" {
			t.Errorf("match %d: got %q", i, g)
		}
		labels = append(labels, strings.TrimSuffix(g["label"], "_positive"))
	}
	if want := []string{"true", "true", "false", "false", "false", "true"}; !slices.Equal(labels, want) {
		t.Errorf("got the labels %q, want %q", labels, want)
	}
	if !l.revoked(k) || l.revoked(other) {
		t.Errorf("revoked: the key that leaked %t, another %t", l.revoked(k), l.revoked(other))
	}
	if text := l.log.String(); strings.Contains(text, token) || !strings.Contains(text, k.ID) {
		t.Errorf("the log must name the key and hold no token: %s", text)
	}
}

// What is not signed by GitHub, or is no message, revokes nothing.
func TestGitHubLeaksRefuses(t *testing.T) {
	l := newLeaks(t)
	token, k := l.issue()
	body, long := message(token), message(token)+strings.Repeat(" ", 1<<20)
	cut := `[{"token":"` + token + `"}`
	for name, tt := range map[string]struct {
		id, signature, body string
		status              int
	}{
		"no signature":    {"current", "", body, 403},
		"no id":           {"", l.sign(body), body, 403},
		"unknown id":      {"another", l.sign(body), body, 403},
		"a key not ECDSA": {"no PEM", l.sign(body), body, 403},
		"not Base64":      {"current", "%%%", body, 403},
		"not ASN.1":       {"current", "c2lnbmF0dXJl", body, 403},
		"of another body": {"current", l.sign(message("x")), body, 403},
		"another space":   {"current", l.sign(body), body + " ", 403},
		"too long":        {"current", l.sign(long), long, 403},
		"cut":             {"current", l.sign(cut), cut, 503},
		"an object":       {"current", l.sign("{}"), "{}", 503},
	} {
		if w := l.post(tt.id, tt.signature, tt.body); w.Code != tt.status || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, tt.status)
		}
	}
	if l.revoked(k) {
		t.Error("the key is revoked")
	}
}

// GitHub is told when a key could not be revoked. The other keys are.
func TestGitHubLeaksFails(t *testing.T) {
	l := newLeaks(t)
	first, firstKey := l.issue()
	second, secondKey := l.issue()
	body := message(first, second)
	l.broken = firstKey.ID
	if w := l.post("current", l.sign(body), body); w.Code != 503 || strings.Contains(w.Body.String(), "positive") {
		t.Errorf("got %d %s, want 503 without labels", w.Code, w.Body)
	}
	if l.revoked(firstKey) || !l.revoked(secondKey) || !strings.Contains(l.log.String(), "the disk is full") {
		t.Errorf("revoked: %t, %t, want the second alone; the log: %s", l.revoked(firstKey), l.revoked(secondKey), &l.log)
	}
	l.broken = ""
	if w := l.post("current", l.sign(body), body); w.Code != 200 || !l.revoked(firstKey) {
		t.Errorf("sent again: got %d, revoked: %t", w.Code, l.revoked(firstKey))
	}
}

// Ids that GitHub does not have cannot use up its 60 requests an hour, and a
// fetch that fails takes no key away.
func TestGitHubPublicKeys(t *testing.T) {
	l := newLeaks(t)
	body := message()
	for minute := range 60 {
		l.away = minute >= 30
		want := map[bool]int{false: 403, true: 503}[l.away]
		for i := range 3 {
			if w := l.post(fmt.Sprint(minute, i), l.sign(body), body); w.Code != want {
				t.Errorf("minute %d, an unknown id: got %d, want %d", minute, w.Code, want)
			}
		}
		if w := l.post("current", l.sign(body), body); w.Code != 200 {
			t.Errorf("minute %d: got %d, want 200", minute, w.Code)
		}
		l.asked = l.asked.Add(-time.Minute) // it passes
	}
	if l.fetches > 13 {
		t.Errorf("%d fetches in an hour, want 13 at most", l.fetches)
	}
	l.away, l.asked = false, time.Time{}
	if w := l.post("unknown", l.sign(body), body); w.Code != 403 {
		t.Errorf("GitHub is back: got %d, want 403", w.Code)
	}
}
