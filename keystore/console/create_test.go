package console_test

import (
	"errors"
	"fmt"
	"html"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestCreate(t *testing.T) {
	b := newBench(t)
	wantText(t, "the form", b.get("/new"), 200, "Create an API key · Developer")
	got := b.post("/new", b.form(t))
	token := secretOf(t, got)
	wantText(t, "the page with the secret", got, 201, "This is the only time that its secret is shown.", "account:read",
		"Production")
	k := b.all(t, "acme")[0]
	if k.Digest != keystore.DigestOf(token) || k.Name != "Nightly import" || k.CreatedBy != "ada" ||
		k.Environment != keystore.Production || !k.ExpiresAt.IsZero() ||
		!slices.Equal(k.Scopes, []scope.Name{"account:read", "tasks:read"}) {
		t.Errorf("got %+v", k)
	}
	b.wantStatus(t, "the new key", token, keystore.Active)
	wantText(t, "the list", b.get("/"), 200, "Nightly import", "svc_live_…"+token[len(token)-4:], "Never used", "Active")
	wantText(t, "its page", b.get("/"+k.ID), 200, "by Ada Lovelace")
}

// Nothing but the body of the one answer has the secret, nor eight characters
// of it.
func TestTheSecretIsNowhereElse(t *testing.T) {
	b := newBench(t)
	got := b.post("/new", b.form(t))
	token := secretOf(t, got)
	var elsewhere strings.Builder
	if err := got.Header.Write(&elsewhere); err != nil {
		t.Fatal(err)
	}
	k := b.all(t, "acme")[0]
	for _, path := range []string{"/", "/new", "/" + k.ID, "/" + k.ID + "/rotate", "/" + k.ID + "/revoke"} {
		elsewhere.WriteString(b.get(path).text)
	}
	elsewhere.WriteString(b.log.String())
	for _, e := range b.entries {
		fmt.Fprintf(&elsewhere, " %+v", e)
	}
	random := token[len("svc_live_"):]
	for i := range len(random) - 8 {
		if strings.Contains(elsewhere.String(), random[i:i+8]) {
			t.Fatalf("a part of the secret is in\n%s", &elsewhere)
		}
	}
	b.wantHeld(t, "one form", 1, 1)
}

func TestSendingAFormAgainMintsNothing(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	secretOf(t, b.post("/new", f))
	f.Set("name", "Changed since") // as a browser's back button allows
	for range 3 {
		got := b.post("/new", f)
		wantText(t, "a refresh", got, 200, "cannot be shown again", "No second key was made",
			"Rotate the key: that makes a new secret")
		if secretShape.MatchString(got.text) {
			t.Error("a refresh shows a secret")
		}
		wantHTML(t, "no link to rotate the key", got, `href="./`+b.all(t, "acme")[0].ID+`/rotate"`)
	}
	b.wantHeld(t, "one form, four times", 1, 1)
	// The token is one's own: somebody else's form with the same one makes
	// their key.
	if got := b.do("bea", "POST", "/new", f.Encode(), ofForm...); got.StatusCode != 201 {
		t.Errorf("the same token of another actor: got %s", got.Status)
	}
	// Only a key that can be rotated is said to be.
	b.revoke(t, b.all(t, "acme")[1])
	got := b.post("/new", f)
	wantText(t, "a refresh after the key was revoked", got, 200, "This key cannot be rotated. Create a new one instead.",
		"Show all keys")
	wantNone(t, "the page links to the rotation of a revoked key", got, "/rotate")
}

func TestTwoFormsAtOnceMintOneKey(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	done := make(chan reply)
	for range 20 {
		go func() { done <- b.post("/new", f) }()
	}
	secrets := 0
	for range 20 {
		if secretShape.MatchString((<-done).text) {
			secrets++
		}
	}
	if n := len(b.all(t, "acme")); n != 1 || secrets != 1 {
		t.Errorf("got %d keys and %d secrets, want 1 each", n, secrets)
	}
}

func TestFormsThatAreNotValid(t *testing.T) {
	long := strings.Repeat("é", 101)
	for name, row := range map[string]struct {
		set     url.Values // a nil value deletes
		problem string
	}{
		"no environment":      {url.Values{"environment": nil}, `The environment must be "production" or "sandbox".`},
		"unknown environment": {url.Values{"environment": {"moon"}}, `The environment must be "production" or "sandbox".`},
		"no scopes":           {url.Values{"scopes": nil}, "Pick at least one scope"},
		"unknown scope":       {url.Values{"scopes": {"task:read"}}, `did you mean "tasks:read"?`},
		"scope not assignable": {url.Values{"scopes": {"webhooks:write"}},
			"You may not assign webhooks:write in this environment."},
		"environment closed":     {url.Values{"environment": {"sandbox"}}, "You may not create keys in this environment."},
		"no name":                {url.Values{"name": {"  "}}, "Give the key a name"},
		"name too long":          {url.Values{"name": {long}}, "longer than 100 characters"},
		"name with a line break": {url.Values{"name": {"a\nb"}}, "control character"},
		"name that turns text":   {url.Values{"name": {"paid \u202egnp.exe"}}, "control character"},
		"name of two lines":      {url.Values{"name": {"a\u2028b"}}, "control character"},
		"no expiry":              {url.Values{"expiry": nil}, "Choose when the key expires."},
		"expiry at once":         {url.Values{"expiry": {"0"}}, "Choose when the key expires."},
		"expiry in ten years":    {url.Values{"expiry": {"3651"}}, "Choose when the key expires."},
		"odd expiry":             {url.Values{"expiry": {"-1"}}, "Choose when the key expires."},
		"expiry without a date":  {url.Values{"expiry": {"date"}}, "Fill in the last day"},
		"expiry in the past": {url.Values{"expiry": {"date"}, "expires_on": {"2020-02-02"}},
			"The expiry must lie in the future."},
		"expiry beyond all dates": {url.Values{"expiry": {"date"}, "expires_on": {"9999-12-31"}},
			"The expiry must lie before the year 10000."},
		"a date but no expiry":   {url.Values{"expires_on": {"2090-02-02"}}, "A date is filled in."},
		"networks":               {url.Values{"networks": {"10.0.0.0/8"}}, "Look at these fields again: Networks"},
		"no token":               {url.Values{"issue_token": nil}, "The form arrived incomplete."},
		"token of two lines":     {url.Values{"issue_token": {"a\nb"}}, "The form arrived incomplete."},
		"token that is no ASCII": {url.Values{"issue_token": {"é"}}, "The form arrived incomplete."},
		"token of a control":     {url.Values{"issue_token": {"a\x1f"}}, "The form arrived incomplete."},
		"token of a delete":      {url.Values{"issue_token": {"a\x7f"}}, "The form arrived incomplete."},
		"token too long":         {url.Values{"issue_token": {strings.Repeat("x", 256)}}, "The form arrived incomplete."},
	} {
		b := newBench(t, func(o *console.Options) {
			o.Assignable = func(_ console.Actor, e keystore.Environment) []scope.Name {
				if e == keystore.Sandbox {
					return nil
				}
				return []scope.Name{scope.AccountRead, scope.TasksRead}
			}
		})
		f := b.form(t)
		for field, value := range row.set {
			f[field] = value
		}
		got := b.post("/new", f)
		wantText(t, name, got, 422, row.problem, "Nothing was created.", "Error: Create an API key")
		wantHTML(t, name+": the name that was typed is gone", got,
			`value="`+html.EscapeString(strings.TrimSpace(f.Get("name")))+`"`)
		if !strings.HasPrefix(row.problem, "The expiry") && strings.Contains(plain(got), "The expiry must lie") ||
			strings.Count(got.text, `<p class="problem"`) > 1 {
			t.Errorf("%s: one mistake is told as two:\n%s", name, plain(got))
		}
		wantShown(t, name+": the scopes that were picked", got, slices.Contains(f["scopes"], "tasks:read"),
			`value="tasks:read" checked`)
		wantNone(t, name+": a scope is offered that may not be assigned", got, `value="webhooks:write"`)
		b.wantHeld(t, name, 0, 0)
		// The form as it came back, put right, makes a key.
		good := b.form(t)
		good.Set("issue_token", tokenOf(t, got))
		secretOf(t, b.post("/new", good))
	}
}

// A token is any text of printable ASCII.
func TestTokensOfAForm(t *testing.T) {
	b := newBench(t)
	for _, token := range []string{strings.Repeat("x", 255), " ", "~", "a b"} {
		f := b.form(t)
		f.Set("issue_token", token)
		secretOf(t, b.post("/new", f))
	}
}

// Whoever changes to another organization in a second tab creates no key for it
// by the form of the first.
func TestAFormOfAnotherOrganization(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	for _, field := range hiddenField.FindAllStringSubmatch(b.get("/new").text, -1) {
		f.Set(field[1], field[2])
	}
	got := b.do("oda", "POST", "/new", f.Encode(), ofPage...)
	wantText(t, "a form of another organization", got, 422, "The form was opened for another organization.",
		"Send it again to create the key for other.")
	if keys := b.all(t, "other"); len(keys) != 0 {
		t.Errorf("it made %v", keys[0])
	}
	for _, field := range hiddenField.FindAllStringSubmatch(got.text, -1) {
		f.Set(field[1], field[2])
	}
	secretOf(t, b.do("oda", "POST", "/new", f.Encode(), ofPage...))
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	b := newBench(t)
	got := b.post("/new", url.Values{"issue_token": {"x"}})
	wantText(t, "an empty form", got, 422, "Give the key a name", "Pick at least one scope", "The environment must be",
		"Choose when the key expires.")
	wantHTML(t, "the focus does not go to the message", got, `role="alert" tabindex="-1" autofocus`)
	named := regexp.MustCompile(`aria-describedby="[^"]*?([a-z]+-problem)"|href="#([a-z]+)"`)
	for _, id := range named.FindAllStringSubmatch(got.text, -1) {
		wantHTML(t, "what describes a field, or a link leads to, is not there", got, `id="`+id[1]+id[2]+`"`)
	}
}

func TestExpiry(t *testing.T) {
	for _, row := range []struct {
		expiry, on string
		want       time.Time // in a bubble, whose clock starts on 1 January 2000
	}{
		{"never", "", time.Time{}},
		{"3650", "", time.Date(2009, 12, 29, 0, 0, 0, 0, time.UTC)},
		{"1", "", time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)},
		{"30", "", time.Date(2000, 1, 31, 0, 0, 0, 0, time.UTC)},
		{"365", "", time.Date(2000, 12, 31, 0, 0, 0, 0, time.UTC)},
		{"date", "2000-01-01", time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)}, // the day is included
		{"date", "2000-12-31", time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			wantHTML(t, "the form lets a key end today", b.get("/new"), `min="2000-01-02"`)
			f := b.form(t)
			f.Set("expiry", row.expiry)
			f.Set("expires_on", row.on)
			secretOf(t, b.post("/new", f))
			if got := b.all(t, "acme")[0].ExpiresAt; !got.Equal(row.want) {
				t.Errorf("%s %s: got %v, want %v", row.expiry, row.on, got, row.want)
			}
		})
	}
}

func TestPresets(t *testing.T) {
	b := newBench(t)
	got := b.get("/new?preset=External+worker")
	if got, want := picked(got), "deliverables:write chat:read chat:write"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, d := range scope.Default().Definitions() {
		wantText(t, "the meaning of a scope", got, 200, string(d.Name)+" "+d.Meaning)
	}
	if got := picked(b.get("/new?preset=nothing")); got != "" {
		t.Errorf("an unknown preset picks %s", got)
	}
}

func TestNamesAreEscaped(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	f.Set("name", `<script>alert("1")</script>'"`+"`")
	pages := []reply{b.post("/new", f)}
	k := b.all(t, "acme")[0]
	for _, path := range []string{"/", "/" + k.ID, "/" + k.ID + "/rotate", "/" + k.ID + "/revoke"} {
		pages = append(pages, b.get(path))
	}
	f.Set("environment", "moon")
	f.Set("issue_token", "another")
	for _, page := range append(pages, b.post("/new", f)) {
		wantHTML(t, "the name", page, "&lt;script&gt;")
		if strings.Contains(page.text, "<script>") {
			t.Errorf("the name is not escaped in %s", page.text)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	for _, path := range []string{"/new", "/" + k.ID + "/rotate"} {
		for body, status := range map[string]int{
			"name=" + strings.Repeat("x", 64<<10-5): 422,
			"name=" + strings.Repeat("x", 64<<10-4): 413,
			"name=%zz":                              400,
		} {
			if got := b.do("ada", "POST", path, body, ofPage...); got.StatusCode != status {
				t.Errorf("%s, %d bytes: got %s, want %d", path, len(body), got.Status, status)
			}
		}
	}
}

// A form or a link with thousands of scopes that do not exist is answered with
// the first of them.
func TestManyUnknownScopes(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	var names strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&names, "x%x ", i)
	}
	f["scopes"] = []string{names.String()}
	wantText(t, "the form", b.post("/new", f), 422, `There is no scope "x9".`)
	wantText(t, "a link", b.get("/new?"+url.Values{"scopes": f["scopes"]}.Encode()), 200, "cannot assign: x0 , x1 ,")
	for _, got := range []reply{b.post("/new", f), b.get("/new?" + f.Encode())} {
		if strings.Contains(plain(got), "xa") || len(got.text) > 30_000 {
			t.Errorf("got %s with %d bytes", got.Status, len(got.text))
		}
	}
}

// While the store is away nothing is made or replaced, and the same form makes
// one key when it is back.
func TestAStoreThatFailsIsNoMistakeOfTheForm(t *testing.T) {
	for _, rotate := range []bool{false, true} {
		b := newBench(t)
		old, k := b.add(t, "acme")
		path, f, title := "/new", b.form(t), "Create an API key"
		if rotate {
			path, title = "/"+k.ID+"/rotate", "Rotate “Old one”"
			f = url.Values{"issue_token": {tokenOf(t, b.get(path))}, "overlap": {"0"}}
		}
		b.store.Before = faulty.At("Insert", errors.New("disk on fire at 10.0.0.7"))
		got := b.post(path, f)
		wantText(t, path, got, 503, title, "It is not known whether anything was changed.")
		wantNone(t, "the cause is shown", got, "disk", "10.0.0.7")
		if logged := b.log.String(); got.Header.Get("Retry-After") == "" || !strings.Contains(logged, "10.0.0.7") ||
			!strings.Contains(logged, "code=key_store_unavailable") {
			t.Errorf("%s: got %v, log %s", path, got.Header, logged)
		}
		if tokenOf(t, got) != f.Get("issue_token") || secretShape.MatchString(got.text) {
			t.Error("the form came back with another token, so that a repeat could make a second key, or with a secret")
		}
		b.wantStatus(t, path+", the old key", old, keystore.Active)
		b.wantActs(t)
		b.store.Before = nil
		token := secretOf(t, b.post(path, f))
		b.wantStatus(t, path+", the new key", token, keystore.Active)
		b.wantStatus(t, path+", the old key", old, map[bool]keystore.Status{false: keystore.Active,
			true: keystore.Revoked}[rotate])
	}
}

// The issuer's limits are shown at the fields. A limit that the key itself has
// reached does not hide that it was made.
func TestLimits(t *testing.T) {
	b := newBench(t)
	b.mount(issuing.Options{MaxKeys: 1, MaxLife: 40 * 24 * time.Hour})
	f := b.form(t)
	wantText(t, "without an expiry", b.post("/new", f), 422, "The key must expire within 40 days.")
	f.Set("expiry", "30")
	secretOf(t, b.post("/new", f))
	wantText(t, "the repeat", b.post("/new", f), 200, "cannot be shown again")
	f.Set("issue_token", "another")
	wantText(t, "a second key", b.post("/new", f), 422, "The limit of an organization, 1, is reached")
}

// The page of a secret waits for its first use, and says when that has come.
func TestFirstUse(t *testing.T) {
	b := newBench(t)
	got := b.post("/new", b.form(t))
	k := b.all(t, "acme")[0]
	wantText(t, "the secret", got, 201, "No request with this key so far.", "Check again")
	wantHTML(t, "the script is not told where to ask", got, `data-wait="./`+k.ID+`/used"`)
	wantText(t, "before", b.get("/"+k.ID+"/used"), 200, "No request with this key so far.", "Check again")
	b.record(t, k, keystore.Use{At: time.Now(), Requests: 1, From: netip.MustParseAddr("192.0.2.7")})
	got = b.get("/" + k.ID + "/used")
	wantText(t, "after", got, 200, "It works: the key was used just now", "from 192.0.2.7")
	wantHTML(t, "after the first use the page waits on", got, `class="used done"`)
	wantNone(t, "after the first use the page waits on", got, "Check again")
	wantText(t, "a POST", b.post("/"+k.ID+"/used", nil), 405)
}
