package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestBodiesAreReleased: however a request ends, it gives back the room of its
// body.
func TestBodiesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 30_000
		block := make(chan struct{})
		s := newSite(t, keyedOptions{
			Runner: replies(idem.Options{Wait: 300 * time.Millisecond}), MaxBody: 40_000, MaxBodies: 190_000,
			Partition: func(r *http.Request) string {
				if r.Header.Get("Do") == "panic in Partition" {
					panic("partition")
				}
				return ""
			},
		}, func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Do") {
			case "panic":
				panic("boom")
			case "abort":
				panic(http.ErrAbortHandler)
			case "free":
				middleware.ExecutionFrom(r.Context()).Free()
			case "block":
				<-block
			}
			w.WriteHeader(201)
		})
		send := func(key, do string, body io.Reader) (a answer) {
			defer func() { _ = recover() }()
			r := post(s.token, key, "Do: "+do)
			r.Body, r.ContentLength = io.NopCloser(body), -1
			if do == "leave" {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				r = r.WithContext(ctx)
			}
			return serve(s, r)
		}
		for i := range 50 {
			for _, do := range []string{"return", "panic", "abort", "free", "panic in Partition", "leave"} {
				send(fmt.Sprint(do, i), do, &letters{size})
			}
			send(fmt.Sprint("return", i), "reuse", &letters{size + 1})
			send("too large", "", &letters{50_000})
			send("broken", "", io.MultiReader(&letters{size}, iotest.ErrReader(io.ErrUnexpectedEOF)))
		}
		var wg sync.WaitGroup
		for range 11 { // the first runs, the others wait for it in vain
			wg.Go(func() { send("blocks", "block", &letters{size}) })
			synctest.Wait()
		}
		time.Sleep(time.Second)
		close(block)
		wg.Wait()

		block = make(chan struct{})
		for i := range 3 {
			wg.Go(func() {
				wantAnswer(t, "no room is left", send(fmt.Sprint("end", i), "block", &letters{size}), 201)
			})
		}
		synctest.Wait()
		close(block)
		wg.Wait()
	})
}

// TestBadBodies: a body that is not whole is refused, nothing is claimed and
// nothing runs, and the key is free for a request that is whole.
func TestBadBodies(t *testing.T) {
	ring, token := oneKey(t)
	const length, chunked, tooLarge = "Content-Length: ", "Transfer-Encoding: chunked\r\n\r\n", "body_too_large"
	rows := []struct {
		name, sent string
		closes     bool // the client, behind that
		status     int
		code       string
	}{
		{"declared too large", length + "1001\r\n\r\nonly the beginning", false, 413, tooLarge},
		{"declared far too large", length + "9223372036854775807\r\n\r\n", false, 413, tooLarge},
		{"declared too large, 100-continue", "Expect: 100-continue\r\n" + length + "1001\r\n\r\n", false, 413, tooLarge},
		{"chunked and too large", chunked + "3e9\r\n" + strings.Repeat("a", 1001) + "\r\n", false, 413, tooLarge},
		{"never ending", chunked, false, 413, tooLarge},
		{"short", length + "10\r\n\r\n{}", true, 400, "bad_request"},
		{"no chunk size", chunked + "xyz\r\n", false, 400, "bad_request"},
		{"chunk longer than its size", chunked + "1\r\n{}\r\n0\r\n\r\n", false, 400, "bad_request"},
		{"chunks without an end", chunked + "2\r\n{}\r\n", true, 400, "bad_request"},
		{"stalled", length + "10\r\n\r\n{}", false, 400, "bad_request"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // net/http waits before it closes a connection that still sends
			faulty := idemtest.NewFaulty(&idem.Memory{})
			var runs, arrived atomic.Int64
			h := keyed(ring, with(keyedOptions{Runner: runnerOf(faulty), MaxBody: 1000}), numbered(&runs, nil))
			srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.name == "stalled" && arrived.Add(1) == 1 { // from here on the server waits for the body alone
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				}
				h.ServeHTTP(w, r)
			}))
			c := dial(t, srv)
			c.send("POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\nIdempotency-Key: a\r\n" + row.sent)
			for i := 0; row.name == "never ending" && i < 200; i++ { // the server stops reading long before
				if _, err := io.WriteString(c, "400\r\n"+strings.Repeat("a", 1024)+"\r\n"); err != nil {
					break
				}
			}
			if row.closes {
				_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			}
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
	ring, token := oneKey(t)
	overBoth(t, func(t *testing.T, protocol string) {
		var got, length atomic.Int64
		srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
			length.Store(r.ContentLength)
			b, err := io.ReadAll(r.Body)
			if got.Store(int64(len(b))); err != nil || strings.Trim(string(b), "a") != "" {
				t.Errorf("body of %d bytes, %v", len(b), err)
			}
		}))
		for _, size := range []int64{0, 1, 511, 512, 513, 16 << 10, 16<<10 + 1, 1 << 20, 1<<20 + 1} {
			for _, declared := range []int64{size, -1} {
				t.Run(fmt.Sprintf("%d declared %d", size, declared), func(t *testing.T) {
					body := struct{ io.Reader }{strings.NewReader(strings.Repeat("a", int(size)))}
					r := newRequest(t, "POST", srv.URL, token, body)
					if r.ContentLength = declared; size == 0 {
						r.Body, declared = http.NoBody, 0
					}
					r.Header.Set("Idempotency-Key", t.Name())
					a := do(t, client, r)
					if size <= 1<<20 && (a.StatusCode != 200 || got.Load() != size || length.Load() != declared) {
						t.Errorf("%d, the handler read %d bytes, want all", a.StatusCode, got.Load())
					}
					if size > 1<<20 && (a.StatusCode != 413 || !strings.Contains(a.problem(t).Detail, "1048576")) {
						t.Errorf("%d %s, want 413 that names the limit", a.StatusCode, a.body)
					}
				})
			}
		}
	})
}

// TestRequestOfTheHandler: reading the body ahead changes nothing that a
// handler sees of the request.
func TestRequestOfTheHandler(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("title", "one")
	file, _ := parts.CreateFormFile("file", "a.txt")
	fmt.Fprint(file, "content")
	_ = parts.Close()
	const none, json = "", "application/json"
	for _, row := range []struct {
		name, contentType, body string
		chunked                 bool
		trailer                 http.Header
	}{
		{"none", none, "", false, nil}, {"empty", none, "", true, nil}, {"JSON", json, `{"a":1}`, false, nil},
		{"chunked", json, `{"a":1}`, true, nil}, {"trailer", json, `{"a":1}`, true, http.Header{"X-Sum": {"abc"}}},
		{"form", "application/x-www-form-urlencoded", "title=one&title=two", false, nil},
		{"multipart", parts.FormDataContentType(), form.String(), false, nil},
	} {
		ring, token := oneKey(t)
		overBoth(t, func(t *testing.T, protocol string) {
			views := make(chan string, 1)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				view := fmt.Sprint(r.Method, r.RequestURI, r.URL, r.ContentLength, r.TransferEncoding)
				if strings.Contains(row.contentType, "form") {
					view += fmt.Sprint(r.ParseMultipartForm(1<<20), r.Form)
					if f, _, err := r.FormFile("file"); err == nil {
						b, _ := io.ReadAll(f)
						view += string(b)
					}
				} else {
					b, err := io.ReadAll(r.Body)
					view += fmt.Sprint(string(b), err, r.Trailer)
				}
				if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("%s: Read at the end: %d, %v", row.name, n, err)
				}
				views <- view
			})
			send := func(h http.Handler) string {
				srv, client := listen(t, protocol, h)
				var body io.Reader = strings.NewReader(row.body)
				if row.chunked {
					body = struct{ io.Reader }{body}
				}
				r := newRequest(t, "POST", srv.URL+"/a%2Fb?q=1", token, body)
				r.Trailer = row.trailer
				r.Header["Idempotency-Key"], r.Header["Content-Type"] = []string{"a"}, []string{row.contentType}
				if a := do(t, client, r); a.StatusCode != 200 {
					t.Fatalf("%s: %d %s", row.name, a.StatusCode, a.body)
				}
				return <-views
			}
			if want, got := send(handler), send(keyed(ring, middleware.Options{}, handler)); got != want {
				t.Errorf("%s: the handler sees\n%s, without the stage\n%s", row.name, got, want)
			}
		})
	}
}

// TestUnkeyedStreams: without an Idempotency-Key the handler has the body
// before it is all there, and the client the response.
func TestUnkeyedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty, more, w := idemtest.NewFaulty(&idem.Memory{}), make(chan struct{}), httptest.NewRecorder()
		s := newSite(t, keyedOptions{Runner: runnerOf(faulty), MaxBody: 1, MaxResponse: 1},
			func(rw http.ResponseWriter, r *http.Request) {
				begun := make([]byte, 8)
				n, err := io.ReadFull(r.Body, begun)
				steps(string(begun), "flush")(rw, r)
				if err != nil || !w.Flushed || w.Body.String() != string(begun) {
					t.Errorf("read %d bytes, %v, and the client has %q", n, err, w.Body)
				}
				close(more)
				_, _ = io.Copy(rw, r.Body)
			})
		r := request("POST", "/", s.token, "")
		r.Body = io.NopCloser(&unfinished{letters{9}, more})
		if s.ServeHTTP(w, r); w.Body.String() != "aaaaaaaaa" || faulty.Calls(idemtest.Begin) != 0 {
			t.Errorf("got %q after %d claims", w.Body, faulty.Calls(idemtest.Begin))
		}
	})
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

// TestMaxBodies: the bodies in memory are bounded, for one tenant by what is left
// free. Beyond that a request gets 503.
func TestMaxBodies(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		s := newSite(t, keyedOptions{MaxBody: size, MaxBodies: 4 * size}, numbered(&runs, nil))
		send := func(key string, body io.Reader) answer {
			r := post(s.token, key)
			r.Body, r.ContentLength = io.NopCloser(body), -1
			return serve(s, r)
		}
		more, answers := make(chan struct{}), make(chan answer, 2)
		for i := range cap(answers) {
			go func() { answers <- send(fmt.Sprint(i), &unfinished{letters{size - 1}, more}) }()
			synctest.Wait() // it waits for its last byte
		}
		for _, tooMany := range []int{8 << 10, size} {
			wantRefusal(t, "beyond MaxBodies", send("one more", &letters{tooMany}), 503, "too_many_in_flight", "")
		}
		if a := send("small", &letters{4<<10 - 1}); a.StatusCode != 201 || runs.Load() != 1 {
			t.Errorf("a body that does not count: %d with %d runs", a.StatusCode, runs.Load())
		}
		close(more)
		for range cap(answers) {
			wantAnswer(t, "within MaxBodies", <-answers, 201)
		}
	})
	for _, n := range []int{8191, 8192} { // the room for the end of a body does not count
		s := newSite(t, keyedOptions{MaxBody: 8192, MaxBodies: 16384}, sayOK)
		for _, declared := range []int{n, -1} {
			r := post(s.token, fmt.Sprint(declared))
			r.Body, r.ContentLength = io.NopCloser(&letters{n}), int64(declared)
			wantAnswer(t, fmt.Sprintf("%d bytes, declared %d", n, declared), serve(s, r), 200)
		}
	}
}

// TestBodiesOfOneOwner: whoever sends bodies slowly, in however many requests,
// leaves room for the bodies of others, and the sandbox for production.
func TestBodiesOfOneOwner(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		h := keyed(ring, with(keyedOptions{MaxBody: size, MaxBodies: 16 * size}), sayOK)
		send := func(organization string, e keystore.Environment, key string, body io.Reader) answer {
			token, _ := ring.grant(t, keystore.Key{Organization: organization, Environment: e})
			r := httptest.NewRequest("POST", "/", body)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Idempotency-Key", key)
			return serve(h, r)
		}
		more, answers := make(chan struct{}), make(chan answer, 20)
		for i := range cap(answers) {
			go func() {
				answers <- send("loud", keystore.Sandbox, fmt.Sprint(i), &unfinished{letters{size - 1}, more})
			}()
			synctest.Wait()
		}
		if len(answers) != 12 {
			t.Errorf("one tenant was refused %d bodies of 20, want 12", len(answers))
		}
		for range len(answers) {
			wantRefusal(t, "beyond its share", <-answers, 503, "too_many_in_flight", "")
		}
		for _, other := range []string{"quiet " + string(keystore.Production), "quiet " + string(keystore.Sandbox),
			"loud " + string(keystore.Production)} {
			organization, e, _ := strings.Cut(other, " ")
			if a := send(organization, keystore.Environment(e), "a", &letters{size}); a.StatusCode != 200 {
				t.Errorf("%s beside a loud tenant: got %d %s", other, a.StatusCode, a.body)
			}
		}
		close(more)
		for range 8 {
			wantAnswer(t, "a slow body", <-answers, 200)
		}
	})
}

// TestRefusedUploads: a client that sends all of a large body before it reads
// gets the refusal too, whichever stage it is of, and one that reads first gets
// it at once.
func TestRefusedUploads(t *testing.T) {
	const size = 24 << 20 // more than a connection buffers
	ring := newKeyring()
	token, reader := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.TasksRead)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(),
		Idempotency: keyedOptions{Runner: replies(), MaxBody: size, MaxBodies: 2*size + 1}})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), sayOK)
	small := middleware.RouteOptions{Idempotency: keyedOptions{MaxBody: size - 1}}
	api.HandleFunc("POST /api/v1/chat", middleware.Require(scope.TasksWrite), sayOK, small)
	srv, srv2 := start(t, api), startTLS(t, api)
	piece := make([]byte, 64<<10)

	open := func(path, token, key, more string) *wire {
		c := dial(t, srv)
		c.send("POST /api/v1/" + path + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token +
			"\r\nIdempotency-Key: " + key + "\r\n" + more + "\r\n\r\n")
		return c
	}
	sendAll := func(c *wire) {
		for range size / len(piece) {
			if _, err := c.Write(piece); err != nil {
				t.Errorf("sending: %v", err)
				return
			}
		}
	}
	length := fmt.Sprint("Content-Length: ", size)
	first := open("tasks", token, "first", length)
	for range size/len(piece) - 1 {
		first.send(string(piece))
	}
	first.send(string(piece[1:])) // all but a byte: it takes the room of the others

	raw := func(more string, sendsFirst bool) func(path, token string) answer {
		return func(path, token string) answer {
			c := open(path, token, "b", more+length)
			if sendsFirst {
				sendAll(c)
			}
			return c.next("POST")
		}
	}
	clients := map[string]func(path, token string) answer{"reads first": raw("", false), "sends first": raw("", true),
		"expects and sends first": raw("Expect: 100-continue\r\n", true)}
	for name, srv := range map[string]*httptest.Server{"net/http": srv, "HTTP/2": srv2} {
		clients[name] = func(path, token string) answer {
			r := newRequest(t, "POST", srv.URL+"/api/v1/"+path, token, &letters{size})
			r.ContentLength = size
			r.Header.Set("Idempotency-Key", "b")
			return do(t, srv.Client(), r)
		}
	}
	for name, send := range clients {
		for _, row := range []struct {
			path, token string
			status      int
			code        string
		}{
			{"tasks", "", 401, "api_key_missing"}, {"tasks", reader, 403, "insufficient_scope"},
			{"none", token, 404, "not_found"}, {"chat", token, 413, "body_too_large"},
			{"tasks", token, 503, "too_many_in_flight"},
		} {
			a := send(row.path, row.token)
			if p := a.problem(t); a.StatusCode != row.status || p.Code != row.code || a.Close != (name != "HTTP/2") ||
				(a.Header.Get("Retry-After") == "1") != (row.status == 503) || a.ContentLength != int64(len(a.body)) {
				t.Errorf("%s: got %d %v %s, want %d %s", name, a.StatusCode, a.Header, a.body, row.status, row.code)
			}
		}
	}
	first.send("x")
	wantAnswer(t, "the first upload", first.next("POST"), 200)
	// A body that was read whole does not cost the connection, unless the client
	// expects what it may not get.
	for _, more := range []string{"", "Expect: 100-continue\r\n"} {
		c := open("tasks", token, "first", more+fmt.Sprint("Content-Length: ", 512<<10))
		if more != "" {
			c.head("POST")
		}
		c.send(strings.Repeat("x", 512<<10))
		if a := c.next("POST"); a.StatusCode != 422 || a.Close != (more != "") {
			t.Errorf("%q: got %d, close %t", more, a.StatusCode, a.Close)
		}
	}
}

// TestEatenBody: where something outside has read the body, no two creates are
// taken for one.
func TestEatenBody(t *testing.T) {
	for name, eat := range map[string]func(*http.Request){
		"read":     func(r *http.Request) { io.Copy(io.Discard, r.Body) },
		"replaced": func(r *http.Request) { r.Body = http.NoBody },
		"parsed":   func(r *http.Request) { r.ParseForm() },
		"put back": func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		},
	} {
		s := newSite(t, keyedOptions{}, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			eat(r)
			s.ServeHTTP(w, r)
		})
		for _, body := range []string{"one", "two"} {
			a := serve(h, request("POST", "/", s.token, body, "Idempotency-Key: "+body,
				"Content-Type: application/x-www-form-urlencoded"))
			if name == "put back" {
				wantAnswer(t, name, a, 200, body)
				continue
			}
			wantRefusal(t, name, a, 500, "internal", "")
			if !strings.Contains(s.log.String(), "has read the body of the request") {
				t.Errorf("%s: the log has %s", name, s.log)
			}
		}
		if a := serve(h, request("POST", "/", s.token, "", "Idempotency-Key: none")); a.StatusCode != 200 {
			t.Errorf("%s, without a body: %d %s", name, a.StatusCode, a.body)
		}
	}
}

// TestWaitersLetGoOfTheirBodies: what waits keeps the hash of a large body
// alone.
func TestWaitersLetGoOfTheirBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, size = 64, 1 << 20
		ring, token := oneKey(t)
		var runs atomic.Int64
		o := with(keyedOptions{MaxBodies: 4 * (size + 1)}) // of the first request and of one more
		h := keyed(ring, o, numbered(&runs, func(r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
				t.Errorf("the handler read %d bytes, %v", n, err)
			}
			time.Sleep(time.Second)
		}))
		go serve(h, lettersRequest(token, size))
		synctest.Wait()
		before := heap()
		answers := make(chan answer, waiters)
		for range waiters {
			go func() { answers <- serve(h, lettersRequest(token, size)) }()
			synctest.Wait()
		}
		if grown := heap() - before; grown > waiters*size/4 {
			t.Errorf("%d waiters with %d bytes each hold %d bytes", waiters, size, grown)
		}
		for range waiters {
			if a := <-answers; a.StatusCode != 201 || !a.replayed() {
				t.Fatalf("%d %s, want the replay", a.StatusCode, a.body)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// TestWaiterTakesOver: the first request frees the key. A repeat that kept its
// body runs in its place; one whose body was too large to keep is told to come
// again, and leaves the key free. Both also where another process had the
// first.
func TestWaiterTakesOver(t *testing.T) {
	const kept = 16 << 10
	for _, elsewhere := range []bool{false, true} {
		for _, size := range []int{0, kept, kept + 1, 1 << 20} {
			inBubble(t, fmt.Sprintf("%d bytes, elsewhere %t", size, elsewhere), func(t *testing.T) {
				ring, token := oneKey(t)
				var runs atomic.Int64
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n := runs.Add(1)
					if read, err := io.Copy(io.Discard, r.Body); int(read) != size || err != nil {
						t.Errorf("run %d read %d bytes, %v", n, read, err)
					}
					if n == 1 {
						time.Sleep(time.Second)
						middleware.ExecutionFrom(r.Context()).Free()
						return
					}
					w.WriteHeader(201)
				})
				store := &idem.Memory{}
				first := keyed(ring, with(keyedOptions{Runner: runnerOf(store)}), handler)
				second := first
				if elsewhere {
					second = keyed(ring, with(keyedOptions{Runner: runnerOf(store)}), handler)
				}
				go serve(first, lettersRequest(token, size))
				synctest.Wait()
				answers := make(chan answer, 3)
				for range cap(answers) {
					go func() { answers <- serve(second, lettersRequest(token, size)) }()
					synctest.Wait()
				}
				statuses := map[int]int{}
				for range cap(answers) {
					a := <-answers
					statuses[a.StatusCode]++
					if a.StatusCode == 409 && (a.problem(t).Code != "idempotency_in_progress" || a.Header.Get("Retry-After") != "1") {
						t.Errorf("%v %s", a.Header, a.body)
					}
				}
				if size <= kept && (statuses[201] != 3 || runs.Load() != 2) || size > kept && (statuses[409] != 3 ||
					runs.Load() != 1) {
					t.Errorf("statuses %v with %d runs", statuses, runs.Load())
				}
				if a := serve(second, lettersRequest(token, size)); a.StatusCode != 201 || runs.Load() != 2 {
					t.Errorf("afterwards: %d with %d runs, want 201 and 2 in all", a.StatusCode, runs.Load())
				}
			})
		}
	}
}
