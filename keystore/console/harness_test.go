package console_test

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// mount is a prefix of two segments, so that a link that is not relative leads
// astray.
const mount = "/dash/developer"

// A bench is a mounted console and all that hears of what it does.
type bench struct {
	keys    *keystore.Cached
	store   *faulty.Store
	issuer  *issuing.Issuer
	handler http.Handler
	log     *bytes.Buffer
	mu      sync.Mutex
	entries []issuing.AuditEntry // of what the console did
	options console.Options
}

// newBench mounts a console whose administrators are told apart by a cookie:
// ada and bea in acme, oda in other, mem who is no administrator; rea in acme
// may only read.
func newBench(t *testing.T, change ...func(*console.Options)) *bench {
	t.Helper()
	b := &bench{store: &faulty.Store{Store: issuing.NewMemory()}, log: new(bytes.Buffer)}
	b.keys = keystore.NewCached(b.store, keystore.CacheOptions{Timeout: 30 * time.Second})
	b.issuer = issuing.New(b.keys, issuing.Options{})
	o := console.Options{
		Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		SignIn: "/sign-in",
	}
	for _, c := range change {
		c(&o)
	}
	b.options = o
	b.mount(issuing.Options{})
	return b
}

// inBubble gives f a bench in a bubble, whose clock begins on 1 January 2000.
func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t)) })
}

// mount gives the console an Issuer with limits.
func (b *bench) mount(o issuing.Options) {
	o.Audit = func(_ context.Context, e issuing.AuditEntry) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.entries = append(b.entries, e)
	}
	b.handler = http.StripPrefix(mount, console.New(issuing.New(b.keys, o), admin, b.options))
}

// benchOf mounts the console of another issuer.
func benchOf(i *issuing.Issuer, o console.Options) *bench {
	return &bench{issuer: i, handler: http.StripPrefix(mount, console.New(i, admin, o))}
}

// assignable are the only scopes that may be assigned.
func assignable(names ...scope.Name) func(*console.Options) {
	return func(o *console.Options) {
		o.Assignable = func(console.Actor, keystore.Environment) []scope.Name { return names }
	}
}

// holding, ending and called change a key that is made.
func holding(names ...scope.Name) func(*keystore.Key) {
	return func(g *keystore.Key) { g.Scopes = names }
}

func ending(life time.Duration) func(*keystore.Key) {
	return func(g *keystore.Key) { g.ExpiresAt = time.Now().Add(life) }
}

func called(name string) func(*keystore.Key) { return func(g *keystore.Key) { g.Name = name } }

// wantActs reports other acts of the console, such as "revoke key_1 by ada: other".
func (b *bench) wantActs(t *testing.T, want ...string) {
	t.Helper()
	var acts []string
	for _, e := range b.entries {
		acts = append(acts, fmt.Sprintf("%s %s by %s: %s", e.Act, e.Key, e.Actor, e.Reason))
	}
	if !slices.Equal(acts, want) {
		t.Errorf("got the acts %q, want %q", acts, want)
	}
}

func admin(r *http.Request) (console.Actor, error) {
	c, err := r.Cookie("who")
	if err != nil {
		return console.Actor{}, console.ErrSignedOut
	}
	actor, known := map[string]console.Actor{
		"ada":  {ID: "ada", Organization: "acme", Name: "Ada Lovelace"},
		"bea":  {ID: "bea", Organization: "acme", Name: "Bea Cole"},
		"rea":  {ID: "rea", Organization: "acme", Name: "Rea Only", ReadOnly: true},
		"oda":  {ID: "oda", Organization: "other", Name: "Oda Ng"},
		"half": {ID: "half"},
		"edge": {ID: strings.Repeat("x", 255), Organization: strings.Repeat("o", 255)}, // without a name
		"wide": {ID: "ada", Organization: strings.Repeat("x", 256)},
		"long": {ID: strings.Repeat("x", 256), Organization: "acme"},
	}[c.Value]
	switch {
	case known:
		return actor, nil
	case c.Value == "mem":
		return actor, console.ErrNotAdmin
	}
	return actor, context.DeadlineExceeded
}

// A reply is a response with its body read.
type reply struct {
	*http.Response
	text string
}

// do sends a request as somebody; header is name, value, name, value and so on.
func (b *bench) do(who, method, path, body string, header ...string) reply {
	r := httptest.NewRequest(method, mount+path, strings.NewReader(body))
	if who != "" {
		r.AddCookie(&http.Cookie{Name: "who", Value: who})
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return reply{w.Result(), w.Body.String()}
}

// The header of a form, and of one that a page of the console posts.
var (
	ofForm = []string{"Content-Type", "application/x-www-form-urlencoded"}
	ofPage = append([]string{"Accept", "text/html", "Sec-Fetch-Site", "same-origin"}, ofForm...)
)

func (b *bench) get(path string) reply { return b.do("ada", "GET", path, "", "Accept", "text/html") }

func (b *bench) post(path string, form url.Values) reply {
	return b.do("ada", "POST", path, form.Encode(), ofPage...)
}

// form is one that is valid, with the token of a page that was asked for.
func (b *bench) form(t *testing.T) url.Values {
	t.Helper()
	return url.Values{
		"issue_token": {tokenOf(t, b.get("/new"))},
		"name":        {"Nightly import"},
		"environment": {"production"},
		"scopes":      {"account:read", "tasks:read"},
		"expiry":      {"never"},
	}
}

var (
	tokenField  = regexp.MustCompile(`name="issue_token" value="([^"]+)"`)
	secretShape = regexp.MustCompile(`svc_(live|test)_[0-9A-Za-z]{38}`)
)

func tokenOf(t *testing.T, r reply) string {
	t.Helper()
	m := tokenField.FindStringSubmatch(r.text)
	if m == nil {
		t.Fatalf("got %s without an issue token:\n%s", r.Status, r.text)
	}
	return m[1]
}

// secretOf returns the one secret of a page, which has it a second time for
// those without script.
func secretOf(t *testing.T, r reply) string {
	t.Helper()
	found := slices.Compact(secretShape.FindAllString(r.text, -1))
	if r.StatusCode != http.StatusCreated || len(found) != 1 {
		t.Fatalf("got %s with %d secrets, want 201 with exactly one:\n%s", r.Status, len(found), r.text)
	}
	return found[0]
}

// all lists every key of an organization, the newest first.
func (b *bench) all(t *testing.T, organization string) []*keystore.Key {
	t.Helper()
	page, err := b.store.Store.List(t.Context(), organization, issuing.Query{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	return page.Keys
}

// add issues a key beside the console.
func (b *bench) add(t *testing.T, organization string, change ...func(*keystore.Key)) (string, *keystore.Key) {
	t.Helper()
	return b.addBy(t, "ada", organization, change...)
}

func (b *bench) addBy(
	t *testing.T, actor, organization string, change ...func(*keystore.Key),
) (string, *keystore.Key) {
	t.Helper()
	g := keystore.Key{Organization: organization, Name: "Old one", Environment: keystore.Production,
		Scopes: []scope.Name{scope.TasksRead}}
	for _, c := range change {
		c(&g)
	}
	secret, k, err := b.issuer.By(actor, "").Issue(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return secret.Reveal(), k
}

// wantStatus says how a request with a token has to be judged.
func (b *bench) wantStatus(t *testing.T, what, token string, want keystore.Status) {
	t.Helper()
	if got := b.status(t, token); got != want {
		t.Errorf("%s: the key is %s, want %s", what, got, want)
	}
}

func (b *bench) status(t *testing.T, token string) keystore.Status {
	t.Helper()
	k, err := b.keys.Lookup(t.Context(), keystore.DigestOf(token))
	if err != nil {
		t.Fatal(err)
	}
	return k.Status(time.Now())
}

var tag = regexp.MustCompile(`<[^>]*>`)

// plain is what a page says.
func plain(r reply) string {
	text := strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(r.text, " "))), " ")
	return strings.ReplaceAll(text, " .", ".")
}

func wantText(t *testing.T, what string, r reply, status int, texts ...string) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("%s: got %s, want %d", what, r.Status, status)
	}
	for _, text := range texts {
		if !strings.Contains(plain(r), text) {
			t.Errorf("%s: the page does not say %q:\n%s", what, text, plain(r))
		}
	}
}

// wantHTML looks into the source of a page, and wantNone also at what it says.
// what is the mistake.
func wantHTML(t *testing.T, what string, r reply, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			t.Errorf("%s: no %q in\n%s", what, text, r.text)
		}
	}
}

func wantNone(t *testing.T, what string, r reply, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(r.text, text) || strings.Contains(plain(r), text) {
			t.Errorf("%s: %q in\n%s", what, text, r.text)
		}
	}
}

// wantShown wants a text in a page, or in its source, if it is to be shown, and
// else nowhere.
func wantShown(t *testing.T, what string, r reply, shown bool, text string) {
	t.Helper()
	if got := strings.Contains(r.text, text) || strings.Contains(plain(r), text); got != shown {
		t.Errorf("%s: the page has %q: %t, want %t:\n%s", what, text, got, shown, plain(r))
	}
}

// wantSeeOther wants a redirect by which a browser leaves a form, or a search.
func wantSeeOther(t *testing.T, what string, r reply, to string) {
	t.Helper()
	if got := r.Header.Get("Location"); r.StatusCode != http.StatusSeeOther || got != to {
		t.Errorf("%s: got %s to %q, want 303 to %q:\n%s", what, r.Status, got, to, plain(r))
	}
}

var linked = regexp.MustCompile(`(?:href|action|src)="([^"#]+)"`)

// anybody is an admin function that lets everyone in.
func anybody(*http.Request) (console.Actor, error) {
	return console.Actor{ID: "a", Organization: "o"}, nil
}

// wantHeld reports other numbers of keys of acme, and of acts of the console.
func (b *bench) wantHeld(t *testing.T, what string, keys, acts int) {
	t.Helper()
	if got := len(b.all(t, "acme")); got != keys || len(b.entries) != acts {
		t.Errorf("%s: there are %d keys and the acts %+v, want %d and %d", what, got, b.entries, keys, acts)
	}
}

// put writes a key into the store as it is.
func (b *bench) put(t *testing.T, k *keystore.Key) {
	t.Helper()
	if err := b.store.Update(t.Context(), k, issuing.AuditEntry{}); err != nil {
		t.Fatal(err)
	}
}

func suspend(k *keystore.Key) { k.Suspended = true }

func (b *bench) suspend(t *testing.T, k *keystore.Key) {
	t.Helper()
	if _, err := edit(t, b.issuer, k.Organization, k.ID, suspend); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) revoke(t *testing.T, k *keystore.Key) {
	t.Helper()
	if _, err := b.issuer.Revoke(t.Context(), k.Organization, k.ID); err != nil {
		t.Fatal(err)
	}
}

// edit changes a key as it is now.
func edit(
	t testing.TB, i *issuing.Issuer, organization, id string, change func(*keystore.Key),
) (*keystore.Key, error) {
	t.Helper()
	k, err := i.Key(t.Context(), organization, id)
	if err != nil {
		return nil, err
	}
	change(k)
	return i.Edit(t.Context(), *k)
}
