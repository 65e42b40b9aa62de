package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestBadBodies: a body that is not whole is refused, nothing is claimed and
// nothing runs, and the key is free for a request that is whole.
func TestBadBodies(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	head := "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\nIdempotency-Key: a\r\n"
	rows := []struct {
		name   string
		send   func(*wire)
		status int
		code   string
	}{
		{"declared too large", func(c *wire) { c.send(head + "Content-Length: 1001\r\n\r\nonly the beginning") }, 413, "body_too_large"},
		{"declared far too large", func(c *wire) { c.send(head + "Content-Length: 9223372036854775807\r\n\r\n") }, 413, "body_too_large"},
		{"declared too large, 100-continue", func(c *wire) { c.send(head + "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n") }, 413, "body_too_large"},
		{"chunked and too large", func(c *wire) {
			c.send(head + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("a", 1001) + "\r\n")
		}, 413, "body_too_large"},
		{"never ending", func(c *wire) {
			c.send(head + "Transfer-Encoding: chunked\r\n\r\n")
			for range 200 { // the server stops reading long before
				if _, err := io.WriteString(c, "400\r\n"+strings.Repeat("a", 1024)+"\r\n"); err != nil {
					break
				}
			}
		}, 413, "body_too_large"},
		{"short", func(c *wire) {
			c.send(head + "Content-Length: 10\r\n\r\n{}")
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}, 400, "bad_request"},
		{"no chunk size", func(c *wire) { c.send(head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n") }, 400, "bad_request"},
		{"chunk longer than its size", func(c *wire) { c.send(head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n") }, 400, "bad_request"},
		{"chunks without an end", func(c *wire) {
			c.send(head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}, 400, "bad_request"},
		{"stalled", func(c *wire) { c.send(head + "Content-Length: 10\r\n\r\n{}") }, 400, "bad_request"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
			var runs, arrived atomic.Int64
			h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(faulty), MaxBody: 1000}}, numbered(&runs, nil))
			srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.name == "stalled" && arrived.Add(1) == 1 { // from here on the server waits for the body alone
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				}
				h.ServeHTTP(w, r)
			}))
			c := dial(t, srv)
			row.send(c)
			a := c.next("POST")
			if p := a.problem(t); a.StatusCode != row.status || p.Code != row.code || p.Detail == "" {
				t.Errorf("%d %s, want %d %s", a.StatusCode, a.body, row.status, row.code)
			}
			wantID(t, a.Response)
			if n := faulty.Calls(idemtest.Begin); n != 0 || runs.Load() != 0 {
				t.Errorf("%d claims and %d runs, want none", n, runs.Load())
			}
			// The connection is not kept, because nobody knows where the next
			// request would begin.
			if !a.Close {
				if rest := c.rest(); rest != "" {
					t.Errorf("after the answer came %q", rest)
				}
			}
			c.Close()
			if a := do(t, srv.Client(), keyedRequest(t, srv.URL, token, "a")); a.StatusCode != 201 || runs.Load() != 1 {
				t.Errorf("the same key with a whole body: %d with %d runs, want 201", a.StatusCode, runs.Load())
			}
		})
	}
}

// TestLargestBody: the limit itself is let through, in any framing.
func TestLargestBody(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		for _, size := range []int{0, 1, 511, 512, 513, 16 << 10, 16<<10 + 1, 1 << 20, 1<<20 + 1} {
			for _, declared := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %d declared %t", protocol, size, declared), func(t *testing.T) {
					var got int
					srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						b, err := io.ReadAll(r.Body)
						if got = len(b); err != nil || strings.Trim(string(b), "a") != "" {
							t.Errorf("body of %d bytes, %v", len(b), err)
						}
						if want := int64(size); declared && r.ContentLength != want || !declared && size > 0 && r.ContentLength != -1 {
							t.Errorf("ContentLength %d", r.ContentLength)
						}
					})))
					var body io.Reader = strings.NewReader(strings.Repeat("a", size))
					if !declared {
						body = struct{ io.Reader }{body}
					}
					r := newRequest(t, "POST", srv.URL, token, body)
					r.Header.Set("Idempotency-Key", "a")
					a := do(t, client, r)
					if size <= 1<<20 && (a.StatusCode != 200 || got != size) {
						t.Errorf("%d, the handler read %d bytes, want all", a.StatusCode, got)
					}
					if size > 1<<20 && (a.StatusCode != 413 || !strings.Contains(a.problem(t).Detail, "1048576")) {
						t.Errorf("%d %s, want 413 that names the limit", a.StatusCode, a.body)
					}
				})
			}
		}
	}
}

// TestExpectContinueKeyed: with a key that is in order the client is asked for
// its body; with one that is not it is refused without.
func TestExpectContinueKeyed(t *testing.T) {
	ring := newKeyring()
	var runs atomic.Int64
	srv := start(t, keyed(ring, middleware.Options{}, numbered(&runs, nil)))
	head := "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\nAuthorization: Bearer " + ring.issue(t) + "\r\nIdempotency-Key: "

	c := dial(t, srv)
	c.send(head + "a\r\n\r\n")
	if res := c.head("POST"); res.StatusCode != 100 {
		t.Fatalf("got %d, want 100", res.StatusCode)
	}
	c.send("{}")
	if a := c.next("POST"); a.StatusCode != 201 {
		t.Errorf("got %d %s, want 201", a.StatusCode, a.body)
	}
	c = dial(t, srv)
	c.send(head + "\r\n\r\n")
	if a := c.next("POST"); a.StatusCode != 400 || runs.Load() != 1 {
		t.Errorf("got %d %s with %d runs, want 400 at once", a.StatusCode, a.body, runs.Load())
	}
}

// TestRequestOfTheHandler: reading the body ahead changes nothing that a
// handler sees of the request.
func TestRequestOfTheHandler(t *testing.T) {
	type view struct {
		Length   int64
		Coding   []string
		Trailer  http.Header
		Body     string
		Form     url.Values
		File     string
		Method   string
		URI      string
		Path     string
		Expected error
	}
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("title", "one")
	file, _ := parts.CreateFormFile("file", "a.txt")
	fmt.Fprint(file, "content")
	_ = parts.Close()
	rows := []struct {
		name        string
		contentType string
		body        func() io.Reader
		trailer     http.Header
	}{
		{"none", "", func() io.Reader { return nil }, nil},
		{"empty", "", func() io.Reader { return strings.NewReader("") }, nil},
		{"JSON", "application/json", func() io.Reader { return strings.NewReader(`{"a":1}`) }, nil},
		{"chunked", "application/json", func() io.Reader { return struct{ io.Reader }{strings.NewReader(`{"a":1}`)} }, nil},
		{"trailer", "application/json", func() io.Reader { return struct{ io.Reader }{strings.NewReader(`{"a":1}`)} }, http.Header{"X-Sum": {"abc"}}},
		{"form", "application/x-www-form-urlencoded", func() io.Reader { return strings.NewReader("title=one&title=two") }, nil},
		{"multipart", parts.FormDataContentType(), func() io.Reader { return bytes.NewReader(form.Bytes()) }, nil},
	}
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		for _, row := range rows {
			t.Run(protocol+" "+row.name, func(t *testing.T) {
				views := make(chan view, 2)
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					v := view{Length: r.ContentLength, Coding: r.TransferEncoding, Method: r.Method, URI: r.RequestURI, Path: r.URL.String()}
					if strings.Contains(row.contentType, "form") {
						v.Expected = r.ParseMultipartForm(1 << 20)
						v.Form = r.Form
						if f, _, err := r.FormFile("file"); err == nil {
							b, _ := io.ReadAll(f)
							v.File = string(b)
						}
					} else {
						b, err := io.ReadAll(r.Body)
						v.Body, v.Expected = string(b), err
						v.Trailer = r.Trailer.Clone()
					}
					if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
						t.Errorf("Read at the end: %d, %v", n, err)
					}
					views <- v
				})
				send := func(h http.Handler) view {
					srv, client := listen(t, protocol, h)
					r := newRequest(t, "POST", srv.URL+"/a%2Fb?q=1", token, row.body())
					r.Trailer = row.trailer
					r.Header.Set("Idempotency-Key", "a")
					if row.contentType != "" {
						r.Header.Set("Content-Type", row.contentType)
					}
					if a := do(t, client, r); a.StatusCode != 200 {
						t.Fatalf("%d %s", a.StatusCode, a.body)
					}
					return <-views
				}
				want, got := send(handler), send(keyed(ring, middleware.Options{}, handler))
				if !reflect.DeepEqual(got, want) {
					t.Errorf("the handler sees\n%+v, without the stage\n%+v", got, want)
				}
			})
		}
	}
}

// TestUploadsAreRemoved: the files that a parsed form leaves on the disk are
// gone when the request is over, although the handler has a copy of the
// request.
func TestUploadsAreRemoved(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, _ := parts.CreateFormFile("file", "a.txt")
	_, _ = file.Write(make([]byte, 10_000))
	_ = parts.Close()
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		for _, key := range []string{"", "a", "panics"} {
			t.Run(fmt.Sprintf("%s key %q", protocol, key), func(t *testing.T) {
				dir := t.TempDir()
				t.Setenv("TMPDIR", dir)
				srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := r.ParseMultipartForm(1); err != nil {
						t.Error(err)
					}
					if files, _ := os.ReadDir(dir); len(files) != 1 {
						t.Errorf("%d files while the handler runs, want the upload", len(files))
					}
					if key == "panics" {
						panic("boom")
					}
				})))
				r := newRequest(t, "POST", srv.URL, token, bytes.NewReader(form.Bytes()))
				r.Header.Set("Content-Type", parts.FormDataContentType())
				if key != "" {
					r.Header.Set("Idempotency-Key", key)
				}
				do(t, client, r)
				srv.Close()
				if files, _ := os.ReadDir(dir); len(files) != 0 {
					t.Errorf("%d files are left", len(files))
				}
			})
		}
	}
}

// TestUnkeyedStreams: without an Idempotency-Key the handler has the body
// before it is all there, and the client the response.
func TestUnkeyedStreams(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(faulty), MaxBody: 1, MaxResponse: 1}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctrl := http.NewResponseController(w)
				_ = ctrl.EnableFullDuplex()
				_ = ctrl.Flush()
				_, _ = io.Copy(flushing{w, ctrl}, r.Body)
			})))
			in, out := io.Pipe()
			res, err := client.Do(newRequest(t, "POST", srv.URL, token, in))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			for _, word := range []string{"to ", "and ", "fro"} {
				fmt.Fprint(out, word)
				b := make([]byte, len(word))
				if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != word {
					t.Fatalf("echo of %q: %q, %v", word, b, err)
				}
			}
			out.Close()
			if n := faulty.Calls(idemtest.Begin); n != 0 {
				t.Errorf("%d claims", n)
			}
		})
	}
}

type flushing struct {
	io.Writer
	*http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	_ = f.Flush()
	return n, err
}

// TestMultipartReuse: a repeat with a new boundary is another request, and the
// refusal says so.
func TestMultipartReuse(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	h := keyed(ring, middleware.Options{}, numbered(new(atomic.Int64), nil))
	ask := func(boundary string) answer {
		return serve(h, request("POST", "/", token, "--"+boundary+"--\r\n", "Idempotency-Key: a", "Content-Type: Multipart/form-data; boundary="+boundary))
	}
	if a := ask("one"); a.StatusCode != 201 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if a := ask("one"); a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("same boundary: %d, want the replay", a.StatusCode)
	}
	if a := ask("two"); a.StatusCode != 422 || !strings.Contains(a.problem(t).Detail, "boundary") {
		t.Errorf("other boundary: %d %s, want 422 that names it", a.StatusCode, a.body)
	}
}

// unfinished is a body whose last byte comes when more is closed.
type unfinished struct {
	letters
	more <-chan struct{}
}

func (u *unfinished) Read(p []byte) (int, error) {
	if u.left > 1 {
		p = p[:min(len(p), u.left-1)]
	} else {
		<-u.more
	}
	return u.letters.Read(p)
}

// TestMaxBodies: the bodies in memory are bounded, for one owner by what is left
// free. Beyond that a request gets 503, and however a request ends, it gives its
// room back.
func TestMaxBodies(t *testing.T) {
	const size = 1 << 20
	ends := map[string]struct {
		end    func(*http.Request)
		status int
	}{
		"return":  {func(*http.Request) {}, 200},
		"panic":   {func(*http.Request) { panic("boom") }, 500},
		"FreeKey": {func(r *http.Request) { middleware.FreeKey(r.Context()) }, 200},
	}
	for name, tt := range ends {
		synctest.Test(t, func(t *testing.T) {
			ring := newKeyring()
			token := ring.issue(t)
			var runs atomic.Int64
			h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{
				Runner: replies(), MaxBody: size, MaxBodies: 4 * size,
			}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				tt.end(r)
			}))
			send := func(key string, body io.Reader) answer {
				r := httptest.NewRequest("POST", "/", body)
				r.ContentLength = -1
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Idempotency-Key", key)
				return serve(h, r)
			}
			for round := range 3 {
				more := make(chan struct{})
				answers := make(chan answer, 2)
				for i := range cap(answers) {
					go func() { answers <- send(fmt.Sprint(round, i), &unfinished{letters{size - 1}, more}) }()
					synctest.Wait() // it waits for its last byte
				}
				for _, tooMany := range []int{8 << 10, size} {
					a := send("one more", &letters{tooMany})
					wantRefusal(t, "beyond MaxBodies", a, 503, "too_many_in_flight", "")
				}
				if n := runs.Load(); n != int64(2*round) {
					t.Errorf("%s: %d runs in round %d", name, n, round)
				}
				if a := serve(h, request("POST", "/", token, "", "Idempotency-Key: no body "+name)); a.StatusCode == 503 {
					t.Errorf("%s: a request without a body got %d", name, a.StatusCode)
				}
				runs.Store(int64(2 * round))
				close(more)
				for range cap(answers) {
					if a := <-answers; a.StatusCode != tt.status {
						t.Errorf("%s, round %d: %d %s, want %d", name, round, a.StatusCode, a.body, tt.status)
					}
				}
				// Requests that are refused give their room back, too.
				if a := send("too large", &letters{size + 1}); a.StatusCode != 413 {
					t.Errorf("%s: %d %s, want 413", name, a.StatusCode, a.body)
				}
				if a := send("broken", io.MultiReader(&letters{size / 2}, iotest.ErrReader(io.ErrUnexpectedEOF))); a.StatusCode != 400 {
					t.Errorf("%s: %d %s, want 400", name, a.StatusCode, a.body)
				}
			}
		})
	}
}

// TestBodiesOfOneOwner: whoever sends bodies slowly, in however many requests,
// leaves room for the bodies of others, and the sandbox for production.
func TestBodiesOfOneOwner(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(), MaxBody: size, MaxBodies: 16 * size}}, http.HandlerFunc(sayOK))
		tokenOf := func(organization string, environment keystore.Environment) string {
			token, _ := ring.grant(t, keystore.Grant{Organization: organization, Environment: environment})
			return token
		}
		more := make(chan struct{})
		var refused, open int
		answers := make(chan answer)
		flood := func(token, key string) {
			for i := range 20 {
				r := httptest.NewRequest("POST", "/", &unfinished{letters{size - 1}, more})
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Idempotency-Key", fmt.Sprint(key, i))
				go func() { answers <- serve(h, r) }()
				synctest.Wait()
				select {
				case a := <-answers:
					wantRefusal(t, "beyond its share", a, 503, "too_many_in_flight", "")
					refused++
				default:
					open++
				}
			}
		}
		wantFree := func(when string) {
			t.Helper()
			for _, environment := range []keystore.Environment{keystore.Production, keystore.Sandbox} {
				token := tokenOf("quiet", environment)
				if a := serve(h, request("POST", "/", token, strings.Repeat("x", size), "Idempotency-Key: "+when)); a.StatusCode != 200 {
					t.Errorf("%s: another owner got %d %s", when, a.StatusCode, a.body)
				}
			}
		}
		flood(tokenOf("loud", keystore.Sandbox), "a")
		if open != 8 || refused != 12 {
			t.Errorf("one owner has %d bodies and was refused %d, want 8 and 12", open, refused)
		}
		wantFree("one loud owner")
		if a := serve(h, request("POST", "/", tokenOf("loud", keystore.Production), strings.Repeat("x", size), "Idempotency-Key: a")); a.StatusCode != 200 {
			t.Errorf("production of the same organization got %d %s", a.StatusCode, a.body)
		}
		flood(tokenOf("louder", keystore.Production), "b")
		wantFree("two loud owners")
		close(more)
		for range open {
			if a := <-answers; a.StatusCode != 200 {
				t.Errorf("a slow body: %d %s", a.StatusCode, a.body)
			}
		}
	})
}
