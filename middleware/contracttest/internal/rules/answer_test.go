package rules

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A response differs in what a client goes by.
func TestDifference(t *testing.T) {
	a := answer{status: 201, body: "x", header: http.Header{
		"Content-Type": {"Text/Plain ; charset=utf-8"}, "Location": {"/a"}, "Date": {"now"}}}
	for name, test := range map[string]struct {
		change func(b *answer)
		want   string
	}{
		"nothing":   {func(*answer) {}, ""},
		"a date":    {func(b *answer) { b.header.Set("Date", "later") }, ""},
		"a charset": {func(b *answer) { b.header.Set("Content-Type", "text/plain") }, ""},
		"a type": {func(b *answer) { b.header.Del("Content-Type") },
			`the Content-Type is "" and was "Text/Plain ; charset=utf-8"`},
		"a status":   {func(b *answer) { b.status = 200 }, "the status is 200 and was 201"},
		"a body":     {func(b *answer) { b.body = "y" }, `the body is "y" and was "x"`},
		"a location": {func(b *answer) { b.header.Add("Location", "/b") }, `the Location is ["/a" "/b"] and was ["/a"]`},
	} {
		b := a
		b.header = a.header.Clone()
		test.change(&b)
		if got := b.difference(a); got != test.want {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if got := a.mediaType(); got != "text/plain" {
		t.Errorf("got the type %q", got)
	}
	a.header["Retry-After"] = []string{"1", "2"}
	if got, want := a.String(), `201, Location "/a", Retry-After "1, 2", body "x"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := (answer{status: 401}).String(), `401, body ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a.body = strings.Repeat("x", 1001)
	if got := a.short(); len(got.body) != 1000 || len(got.header) != 2 || got.location() != "/a" || got.status != 201 {
		t.Errorf("got %v", got)
	}
	a.body, a.header = "x", http.Header{"Date": {"now"}}
	if got := a.short(); got.body != "x" || len(got.header) != 0 {
		t.Errorf("got %v", got)
	}
}

// A compressed body is read as what it stands for, where it is compressed.
func TestReadAnswer(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, "unpacked")
	_ = w.Close()
	for name, test := range map[string]struct{ coding, body, want string }{
		"plain":        {"", "plain", "plain"},
		"packed":       {"gzip", packed.String(), "unpacked"},
		"not packed":   {"gzip", "p", "no gzip, but p"},
		"nothing":      {"gzip", "", ""},
		"other coding": {"br", packed.String(), packed.String()},
	} {
		body := &closed{Reader: strings.NewReader(test.body)}
		a, err := readAnswer(&http.Response{StatusCode: 201, ProtoMajor: 2, Body: body,
			Header: http.Header{"Content-Encoding": {test.coding}}})
		if err != nil || a.body != test.want || a.status != 201 || a.proto != 2 || a.header == nil || !body.closed {
			t.Errorf("%s: got %+v, %v", name, a, err)
		}
	}
}

// closed tells whether a body was closed.
type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

func TestCurl(t *testing.T) {
	s := &Session{target: Target{URL: "http://one.test"}, base: &url.URL{Scheme: "http"}}
	for want, r := range map[string]request{
		"": {},
		`curl -i -H "Authorization: Bearer $K" "http://one.test/a/b.c"`: get("/a/b.c", "$K"),
		`curl -i --head "http://one.test/"`:                             get("/", "").by("HEAD"),
		`curl -i -X PUT --path-as-is "http://one.test/./a"`:             get("/./a", "").by("PUT"),
		`curl -i --path-as-is "http://one.test//a"`:                     get("//a", ""),
		"curl -i -H \"A: \\\\ \\\" \\` '\" \"http://one.test/\"":        get("/", "").with("A: \\ \" ` '"),
		`curl -i -X POST -H "Transfer-Encoding: chunked" -d 'it'\''s' "http://one.test/"`: {method: "POST", path: "/",
			chunked: true, body: "it's"},
		`curl -i --http2-prior-knowledge "http://one.test/"`: get("/", "").over2(),
		// What curl does not do stands behind the line.
		`curl -i "http://one.test/" # with HTTP/1.0`: get("/", "").guised(asHTTP10),
	} {
		if got := s.curl(r); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	// A line stays short, whatever was sent.
	r := request{method: "POST", path: "/", body: "begin" + strings.Repeat(" ", 64<<10) + "end"}
	line := s.curl(r.with("Idempotency-Key: " + strings.Repeat("k", 1000)))
	if len(line) > 700 || !strings.Contains(line, "'begin ") || !strings.Contains(line, " end'") ||
		!strings.Contains(line, "[65304 bytes left out]") {
		t.Errorf("got %d bytes, %s", len(line), line)
	}
}

// What makes another request of one leaves that one alone.
func TestRequestsAreCopies(t *testing.T) {
	r := get("/a", "key")
	r.lines = append(make([]string, 0, 9), r.lines...)
	one, two := r.with("A: 1").at("/b").by("PUT").anew().over2(), r.with("B: 2")
	want := []string{"Authorization: Bearer key", "A: 1"}
	if !slices.Equal(one.lines, want) || one.path != "/b" || one.method != "PUT" || !one.fresh || !one.http2 {
		t.Errorf("got %+v", one)
	}
	if len(r.lines) != 1 || r.path != "/a" || r.method != "GET" || r.fresh || r.http2 || two.lines[1] != "B: 2" {
		t.Errorf("got %+v", r)
	}
}

// The text of a request is that of its guise.
func TestText(t *testing.T) {
	to := Target{URL: "http://kit.test/base", Keys: map[string]string{"full": "12345678"}}
	base, err := to.complete()
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{target: to, base: base}
	const agent = "User-Agent: contractcheck"
	for want, r := range map[string]request{
		"GET /base/a HTTP/1.1\nHost: kit.test\n" + agent + "\nA: b:c\n\n": get("/a", "").with("A: b:c"),
		"GET /base/a HTTP/1.0\nHost: kit.test\n" + agent + "\n\n":         get("/a", "").guised(asHTTP10),
		"GET /base/b HTTP/1.1\nhost: kit.test\nuser-agent: contractcheck\na: B:C\n\n": get("/b", "").with("A: B:C").
			guised(lowerNames),
		"GET http://kit.test/base/a HTTP/1.1\nHost: kit.test\n" + agent + "\n\n": get("/a", "").
			guised(absoluteTarget),
		"POST /base/a HTTP/1.1\nHost: kit.test\n" + agent + "\nContent-Length: 0\n\n": {method: "POST", path: "/a"},
		"PUT /base/a HTTP/1.1\nHost: kit.test\n" + agent + "\nContent-Length: 2\n\n{}": get("/a", "").by("PUT").
			guised(withBody),
	} {
		if got := strings.ReplaceAll(s.text(r), "\r\n", "\n"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
