package console_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

type made struct {
	Key struct {
		ID, Name, Environment, Hint, Status string
		Scopes                              []string
		CreatedBy                           struct{ ID, Name string } `json:"created_by"`
		ExpiresAt                           *string                   `json:"expires_at"`
	}
	Secret, Warning, Rotate string
	Replayed                bool
}

const create = `{"name":" Nightly ","environment":"sandbox","scopes":["tasks:read","tasks:read"],"expires_at":"2090-01-02T03:04:05.123456789Z"}`

func TestProgramsCreateRotateAndRevoke(t *testing.T) {
	b := newBench(t)
	got := b.program("POST", "/keys", create, "Idempotency-Key", "k1")
	token := secretOf(t, got)
	first := decode[made](t, got)
	if first.Secret != token || !strings.HasPrefix(token, "svc_test_") || first.Key.Name != "Nightly" || !slices.Equal(first.Key.Scopes, []string{"tasks:read"}) ||
		first.Key.CreatedBy.Name != "Ada Lovelace" || *first.Key.ExpiresAt != "2090-01-02T03:04:05.123456Z" || first.Key.Hint != "svc_test_…"+token[len(token)-4:] {
		t.Errorf("got %s", got.text)
	}
	if got.Header.Get("Location") != "./keys/"+first.Key.ID {
		t.Errorf("got Location %q", got.Header.Get("Location"))
	}

	again := b.program("POST", "/keys", create, "Idempotency-Key", "k1")
	replay := decode[made](t, again)
	if again.StatusCode != 200 || again.Header.Get("Idempotent-Replayed") != "true" || !replay.Replayed || replay.Key.ID != first.Key.ID || replay.Secret != "" ||
		strings.Contains(again.text, `"secret"`) || !strings.Contains(replay.Warning, "rotate") || replay.Rotate != "./keys/"+first.Key.ID+"/rotate" {
		t.Errorf("the replay: got %s %s", again.Status, again.text)
	}

	path := "/keys/" + first.Key.ID
	turned := b.program("POST", path+"/rotate", `{"overlap_seconds":0}`, "Idempotency-Key", "k2")
	second := secretOf(t, turned)
	if b.status(t, token) != keystore.Revoked || b.status(t, second) != keystore.Active {
		t.Error("the rotation did not change over")
	}
	if again := b.program("POST", path+"/rotate", `{"overlap_seconds":0}`, "Idempotency-Key", "k2"); again.StatusCode != 200 || secretShape.MatchString(again.text) {
		t.Errorf("the replay of the rotation: got %s %s", again.Status, again.text)
	}
	next := decode[made](t, turned).Key.ID
	if got := b.program("POST", "/keys/"+next+"/revoke", ""); got.StatusCode != 200 || decode[struct{ Status string }](t, got).Status != "revoked" || b.status(t, second) != keystore.Revoked {
		t.Errorf("revoke: got %s %s", got.Status, got.text)
	}
	if len(b.events) != 3 || len(b.all(t, "acme")) != 2 {
		t.Errorf("got %d events and %d keys", len(b.events), len(b.all(t, "acme")))
	}
}

func TestAnIdempotencyKeyIsForOneThing(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	_, other := b.add(t, "acme")
	secretOf(t, b.program("POST", "/keys", create, "Idempotency-Key", "k1"))
	secretOf(t, b.program("POST", "/keys/"+other.ID+"/rotate", `{"overlap_seconds":0}`, "Idempotency-Key", "k2"))
	const two = `{"name":"n","environment":"sandbox","scopes":["tasks:read","chat:read"]}`
	secretOf(t, b.program("POST", "/keys", two, "Idempotency-Key", "k3"))
	keys := len(b.all(t, "acme"))
	for _, row := range [][3]string{
		{"/keys", strings.Replace(create, "Nightly", "Daily", 1), "k1"},
		{"/keys", strings.Replace(create, "sandbox", "production", 1), "k1"},
		{"/keys", strings.Replace(create, `["tasks:read"`, `["chat:read"`, 1), "k1"},
		{"/keys", strings.Replace(create, "2090", "2091", 1), "k1"},
		{"/keys", strings.Replace(create, `["tasks:read"`, `["tasks:write","tasks:read"`, 1), "k1"},
		{"/keys", strings.Replace(two, `,"chat:read"`, "", 1), "k3"},
		{"/keys", `{"name":"Old one","environment":"production","scopes":["tasks:read"]}`, "k2"}, // what the rotation made, but not created
		{"/keys/" + k.ID + "/rotate", `{"overlap_seconds":0}`, "k1"},
		{"/keys/" + k.ID + "/rotate", `{"overlap_seconds":0}`, "k2"},
	} {
		wantProblem(t, row[0]+row[1], b.program("POST", row[0], row[1], "Idempotency-Key", row[2]), 422, "idempotency_key_reused")
	}
	wantText(t, "a form", b.post("/keys/"+k.ID+"/rotate", url.Values{"issue_token": {"k1"}, "overlap": {"0"}}), 422, "has been used for something else")
	if got, _ := b.issuer.Key(t.Context(), "acme", k.ID); !got.RevokedAt.IsZero() || len(b.all(t, "acme")) != keys {
		t.Error("something was changed")
	}
}

func TestRequestsOfProgramsThatAreNotValid(t *testing.T) {
	b := newBench(t)
	for _, row := range []struct {
		body   string
		status int
		code   string
		fields []string
	}{
		{`{}`, 422, "invalid_fields", []string{"name", "scopes", "environment"}},
		{`{"name":"n","environment":"moon","scopes":["task:read"],"expires_at":"2020-01-01T00:00:00Z"}`, 422, "invalid_fields", []string{"environment", "scopes", "expires_at"}},
		{`{"name":"n","environment":"sandbox","scopes":["tasks:read"],"expires":"2090-01-01T00:00:00Z"}`, 400, "bad_request", nil},
		{`{"name":"n","environment":"sandbox","scopes":["tasks:read"],"organization":"other"}`, 400, "bad_request", nil},
		{`{"name":"n","environment":"sandbox","scopes":["tasks:read"],"expires_at":"tomorrow"}`, 400, "bad_request", nil},
		{`{"name":1}`, 400, "bad_request", nil},
		{create + create, 400, "bad_request", nil},
		{`[]`, 400, "bad_request", nil},
		{``, 400, "bad_request", nil},
	} {
		p := wantProblem(t, row.body, b.program("POST", "/keys", row.body), row.status, row.code)
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
		}
		if !slices.Equal(fields, row.fields) {
			t.Errorf("%s: got errors in %v, want %v", row.body, fields, row.fields)
		}
	}
	for _, key := range [][]string{{""}, {strings.Repeat("x", 256)}, {"é"}, {"a\tb"}, {"a", "a"}} {
		var header []string
		for _, v := range key {
			header = append(header, "Idempotency-Key", v)
		}
		wantProblem(t, strings.Join(key, ","), b.program("POST", "/keys", create, header...), 400, "idempotency_key_invalid")
	}
	wantProblem(t, "a form for JSON", b.do("ada", "POST", "/keys", valid, "Accept", "application/json", "Content-Type", "application/x-www-form-urlencoded"), 415, "unsupported_media_type")
	if got := b.do("ada", "POST", "/keys", create, "Accept", "text/html", "Content-Type", "application/json"); got.StatusCode != 415 {
		t.Errorf("JSON for a page: got %s", got.Status)
	}
	if len(b.all(t, "acme")) > 0 {
		t.Error("a key was created")
	}
}

func TestWhoGetsJSON(t *testing.T) {
	b := newBench(t)
	for accept, want := range map[string]bool{
		"":                                 false,
		"*/*":                              false,
		"application/json":                 true,
		"Application/JSON; charset=utf-8":  true,
		"application/problem+json, */*":    true,
		"text/html,application/json;q=0.9": false,
		"text/html,application/xhtml+xml":  false,
		"application/jsonp":                false,
	} {
		got := b.do("ada", "GET", "/keys", "", "Accept", accept)
		if is := got.Header.Get("Content-Type") == "application/json"; is != want || got.StatusCode != 200 {
			t.Errorf("Accept %q: got %s %s", accept, got.Status, got.Header.Get("Content-Type"))
		}
		if got.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: got Vary %q", accept, got.Header.Get("Vary"))
		}
	}
	if page := decode[struct{ Keys []any }](t, b.program("GET", "/keys", "")); page.Keys == nil {
		t.Error("no keys is null, want an empty array")
	}
}
