package githubleaks_test

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
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/githubleaks"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// A fixture is a service with a handler and a GitHub that signs.
type fixture struct {
	t       *testing.T
	store   *store
	issuer  *issuing.Issuer
	private *ecdsa.PrivateKey
	log     bytes.Buffer
}

// A store fails for the keys in broken.
type store struct {
	issuing.Store
	broken []string // ids
}

func (s *store) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	if slices.Contains(s.broken, k.ID) {
		return errors.New("the disk is full")
	}
	return s.Store.Update(ctx, k, e)
}

func newFixture(t *testing.T) *fixture {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: &store{Store: issuing.NewMemory()}, private: private}
	f.issuer = issuing.New(f.store, issuing.Options{})
	return f
}

func (f *fixture) handler(o githubleaks.Options) http.Handler {
	o.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	return githubleaks.New(f.issuer, func(_ context.Context, id string) (*ecdsa.PublicKey, error) {
		switch id {
		case "current", strings.Repeat("c", 128):
			return &f.private.PublicKey, nil
		case "away":
			return nil, errors.New("api.github.com does not answer")
		}
		return nil, nil
	}, o)
}

func (f *fixture) issue() (string, *keystore.Key) {
	f.t.Helper()
	secret, k, err := f.issuer.Issue(f.t.Context(), keystore.Key{
		Organization: "acme", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return secret.Reveal(), k
}

func (f *fixture) refused(k *keystore.Key) error {
	f.t.Helper()
	k, err := f.issuer.Key(f.t.Context(), "acme", k.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	return k.Refused()
}

// message returns a body as GitHub makes it, one match a token.
func message(tokens ...string) string {
	var matches []map[string]string
	for _, token := range tokens {
		matches = append(matches, map[string]string{
			"token": token, "type": "svc_api_key", "url": "https://github.com/acme/shop/blob/1/.env",
			"source": "commit"})
	}
	body, _ := json.Marshal(matches)
	return string(body)
}

func (f *fixture) signature(body string) string {
	digest := sha256.Sum256([]byte(body))
	signature, err := ecdsa.SignASN1(rand.Reader, f.private, digest[:])
	if err != nil {
		f.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

func post(h http.Handler, id, signature, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/github/leaks", strings.NewReader(body))
	r.Header.Set("Github-Public-Key-Identifier", id)
	r.Header.Set("Github-Public-Key-Signature", signature)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestLeakedKeysAreRevokedAndLabelled(t *testing.T) {
	f := newFixture(t)
	token, k := f.issue()
	other, otherKey := f.issue()
	_, untouched := f.issue()
	if _, err := f.issuer.Revoke(t.Context(), "acme", otherKey.ID); err != nil {
		t.Fatal(err)
	}
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	var found []githubleaks.Leak
	h := f.handler(githubleaks.Options{Found: func(_ context.Context, l githubleaks.Leak) error {
		found = append(found, l)
		return nil
	}})

	body := message(token, other, unknown, "svc_live_EXAMPLE", "", token)
	w := post(h, "current", f.signature(body), body)
	var got []map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	want := []string{"true_positive", "true_positive", "false_positive", "false_positive", "false_positive",
		"true_positive"}
	for i, sent := range []string{token, other, unknown, "svc_live_EXAMPLE", "", token} {
		if g := got[i]; len(g) != 3 || g["token_raw"] != sent || g["token_type"] != "svc_api_key" ||
			g["label"] != want[i] {
			t.Errorf("match %d: got the label %q and %d members, want %q and 3", i, g["label"], len(g), want[i])
		}
	}
	if err := f.refused(k); !errors.Is(err, keystore.ErrRevoked) {
		t.Errorf("the key that leaked: %v, want revoked", err)
	}
	if err := f.refused(untouched); err != nil {
		t.Errorf("another key: %v, want live", err)
	}
	if len(found) != 3 || found[0].Key.ID != k.ID || found[0].Key.Refused() == nil ||
		found[0].URL != "https://github.com/acme/shop/blob/1/.env" || found[0].Source != "commit" ||
		found[0].Type != "svc_api_key" {
		t.Errorf("Found was told %+v", found)
	}
	if text := f.log.String(); strings.Contains(text, token) || !strings.Contains(text, k.ID) {
		t.Errorf("the log must name the key and hold no token: %s", text)
	}
}

func TestWarnOnlyLeavesTheKeyLive(t *testing.T) {
	f := newFixture(t)
	token, k := f.issue()
	told := 0
	h := f.handler(githubleaks.Options{WarnOnly: true, Found: func(context.Context, githubleaks.Leak) error {
		told++
		return nil
	}})
	body := message(token)
	if w := post(h, "current", f.signature(body), body); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), "true_positive") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if err := f.refused(k); err != nil || told != 1 {
		t.Errorf("the key: %v, told %d times, want live, once", err, told)
	}
}

// Whatever is not GitHub's, or is no message, revokes nothing.
func TestRefusals(t *testing.T) {
	f := newFixture(t)
	token, k := f.issue()
	h := f.handler(githubleaks.Options{})
	body := message(token)
	signature := f.signature(body)
	long := message("x") + strings.Repeat(" ", 1<<20-len(message("x")))
	if w := post(h, strings.Repeat("c", 128), f.signature(long), long); w.Code != http.StatusOK {
		t.Errorf("a long message and a long id: got %d %s", w.Code, w.Body)
	}
	long += " "
	cut := `[{"token":"` + token + `"}`
	for name, c := range map[string]struct {
		id, signature, body string
		status              int
	}{
		"no signature": {"current", "", body, http.StatusForbidden},
		"no id":        {"", signature, body, http.StatusForbidden},
		"unknown id":   {"another", signature, body, http.StatusForbidden},
		"long id":      {strings.Repeat("c", 129), signature, body, http.StatusForbidden},
		"not Base64":   {"away", "%%%", body, http.StatusForbidden}, // so that no key is fetched
		"not ASN.1": {"current", base64.StdEncoding.EncodeToString([]byte("signature")), body,
			http.StatusForbidden},
		"of another body":       {"current", f.signature(message("x")), body, http.StatusForbidden},
		"another space":         {"current", signature, body + " ", http.StatusForbidden},
		"keys are away":         {"away", signature, body, http.StatusServiceUnavailable},
		"huge":                  {"current", f.signature(long), long, http.StatusRequestEntityTooLarge},
		"malformed":             {"current", f.signature(cut), cut, http.StatusBadRequest},
		"an object":             {"current", f.signature("{}"), "{}", http.StatusBadRequest},
		"an array of something": {"current", f.signature("[1]"), "[1]", http.StatusBadRequest},
	} {
		w := post(h, c.id, c.signature, c.body)
		if w.Code != c.status || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.status)
		}
	}
	r := httptest.NewRequest("GET", "/github/leaks", nil)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", w.Code)
	}
	if err := f.refused(k); err != nil {
		t.Errorf("the key is %v, want live", err)
	}
}

// GitHub is told when a key could not be revoked, or nobody was told, and the
// log which. The other keys are revoked at once.
func TestFailuresAreSentAgain(t *testing.T) {
	f := newFixture(t)
	first, firstKey := f.issue()
	second, secondKey := f.issue()
	f.store.broken = []string{firstKey.ID}
	var mail error
	h := f.handler(githubleaks.Options{Found: func(context.Context, githubleaks.Leak) error { return mail }})
	body := message(first, second)
	send := func(want int) {
		t.Helper()
		w := post(h, "current", f.signature(body), body)
		if w.Code != want || want != http.StatusOK && strings.Contains(w.Body.String(), "positive") {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	send(http.StatusServiceUnavailable)
	place := "the token at https://github.com/acme/shop/blob/1/.env: key " + firstKey.ID + ": "
	if !strings.Contains(f.log.String(), place+"the disk is full") {
		t.Errorf("the log does not say where and why: %s", &f.log)
	}
	if f.refused(firstKey) != nil || f.refused(secondKey) == nil {
		t.Errorf("got %v and %v, want the second key revoked alone", f.refused(firstKey), f.refused(secondKey))
	}
	f.store.broken, mail = nil, errors.New("no mail")
	send(http.StatusServiceUnavailable)
	if !strings.Contains(f.log.String(), place+"no mail") {
		t.Errorf("the log does not say of whom nobody was told: %s", &f.log)
	}
	mail = nil
	send(http.StatusOK)
	if f.refused(firstKey) == nil {
		t.Error("the first key is live")
	}
}

// A request that GitHub has given up revokes its keys.
func TestGitHubDoesNotWait(t *testing.T) {
	f := newFixture(t)
	token, k := f.issue()
	body := message(token)
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(body))
	r.Header.Set("Github-Public-Key-Identifier", "current")
	r.Header.Set("Github-Public-Key-Signature", f.signature(body))
	cancel()
	f.handler(githubleaks.Options{}).ServeHTTP(httptest.NewRecorder(), r)
	if f.refused(k) == nil {
		t.Error("the key is live")
	}
}

// The keys of the example are those of the list, and failures are no absence.
func TestExampleFetchesPublicKeys(t *testing.T) {
	f := newFixture(t)
	der, err := x509.MarshalPKIXPublicKey(&f.private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	asked, status := 0, http.StatusOK
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"public_keys": []any{map[string]any{"key_identifier": "a",
			"key": public, "is_current": true}}})
	}))
	defer github.Close()
	keys := &publicKeys{url: github.URL}
	for _, row := range []struct {
		id    string
		known bool
	}{{"a", true}, {"b", false}, {"c", false}} {
		if k, err := keys.get(t.Context(), row.id); err != nil || (k != nil) != row.known || row.known &&
			!k.Equal(&f.private.PublicKey) {
			t.Errorf("%s: got %v, %v", row.id, k, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	status = http.StatusInternalServerError
	keys = &publicKeys{url: github.URL}
	for range 2 {
		if k, err := keys.get(t.Context(), "a"); err == nil || k != nil {
			t.Errorf("GitHub fails: got %v, %v, want an error", k, err)
		}
	}
}

// Nothing goes on when GitHub has given up.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token, _ := f.issue()
		body, began := message(token), time.Now()
		var last context.Context
		w := post(f.handler(githubleaks.Options{Found: func(ctx context.Context, _ githubleaks.Leak) error {
			last = ctx
			<-ctx.Done()
			return ctx.Err()
		}}), "current", f.signature(body), body)
		if took := time.Since(began); w.Code != http.StatusServiceUnavailable || took != 30*time.Second {
			t.Errorf("got %d after %v, want 503 after 30 s", w.Code, took)
		}
		post(f.handler(githubleaks.Options{Found: func(ctx context.Context, _ githubleaks.Leak) error {
			last = ctx
			return nil
		}}), "current", f.signature(body), body)
		if last.Err() == nil {
			t.Error("the context outlives the request")
		}
	})
}

func TestNewPanics(t *testing.T) {
	f := newFixture(t)
	none := func(context.Context, string) (*ecdsa.PublicKey, error) { return nil, nil }
	for name, make := range map[string]func(){
		"no issuer": func() { githubleaks.New(nil, none, githubleaks.Options{}) },
		"no keys":   func() { githubleaks.New(f.issuer, nil, githubleaks.Options{}) },
		"no Found":  func() { githubleaks.New(f.issuer, none, githubleaks.Options{WarnOnly: true}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}
