package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// responses are the ways in which a handler can answer.
var responses = []struct {
	name   string
	handle http.HandlerFunc
}{
	{"nothing at all", func(w http.ResponseWriter, r *http.Request) {}},
	{"implicit 200", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }},
	{"status alone", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(202) }},
	{"204 with a body", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := w.Write([]byte("illegal")); err != http.ErrBodyNotAllowed {
			panic(fmt.Sprintf("Write after 204: %v", err))
		}
	}},
	{"two WriteHeaders", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		w.WriteHeader(500)
		fmt.Fprint(w, "first wins")
	}},
	{"header after WriteHeader", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Early", "1")
		w.WriteHeader(201)
		w.Header().Set("X-Early", "2")
		w.Header().Set("X-Late", "1")
	}},
	{"header after WriteHeader, by the map in hand", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Early"] = []string{"1"}
		w.WriteHeader(201)
		h["X-Early"][0] = "2"
		h["X-Late"] = []string{"1"}
		h.Set("Content-Type", "text/late")
	}},
	{"header after Write, by the map in hand", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		fmt.Fprint(w, "body")
		h["X-Late"] = []string{"1"}
	}},
	{"103, then 200", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Link", "</style.css>; rel=preload")
		w.WriteHeader(103)
		w.Header().Set("X-After", "1")
		fmt.Fprint(w, "hello")
	}},
	{"declared trailer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Count")
		fmt.Fprint(w, "hello")
		w.Header().Set("X-Sum", "abc")
		w.Header().Set("X-Count", "5")
	}},
	{"undeclared trailer", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "abc")
	}},
	{"Content-Encoding", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write([]byte{0x1b, 3, 0, 0xff})
	}},
	{"Content-Length, small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "hello")
	}},
	{"Content-Length, large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 10_000))
	}},
	{"large without a length", func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, strings.Repeat("\x00\xff0123456\n", 100))
		}
	}},
	{"304", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"a"`)
		w.WriteHeader(304)
	}},
	{"cookies", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		fmt.Fprint(w, "hello")
	}},
	{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) }},
	{"500", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", 500) }},
	{"503 with Retry-After", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(503)
	}},
	{"lists", func(w http.ResponseWriter, r *http.Request) {
		for _, page := range []string{"<b>; rel=next", "<a>; rel=prev", "<b>; rel=next"} {
			w.Header().Add("Link", page)
		}
		w.Header()["Vary"] = []string{"Accept", "Accept-Language"}
		w.Header().Set("Empty", "")
		fmt.Fprint(w, "hello")
	}},
	{"name that is not canonical", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["x-lower"] = []string{"1"}
		w.Header()["location"] = []string{"/a"}
		w.WriteHeader(201)
	}},
	{"type decided by several writes", func(w http.ResponseWriter, r *http.Request) {
		for _, c := range "<!DOCTYPE html><p>" {
			_, _ = io.WriteString(w, string(c))
		}
	}},
	{"no Content-Type on purpose", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "hello")
	}},
	{"empty write", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(nil) }},
	{"copied", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, strings.NewReader("hello")) }},
	{"a date of its own", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Mon, 01 Jan 2001 00:00:00 GMT")
		w.WriteHeader(201)
	}},
}

// TestResponsesAndReplays compares the first response and the replay with what
// the same handler answers without any middleware.
func TestResponsesAndReplays(t *testing.T) {
	for _, protocol := range protocols {
		for _, mode := range []string{"lease", "joined"} {
			t.Run(protocol+" "+mode, func(t *testing.T) {
				ring := newKeyring()
				token := ring.issue(t)
				runner := replies()
				if mode == "joined" {
					runner = runnerOf(newJoiner(), idem.Options{Join: true})
				}
				o := middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}}
				for _, row := range responses {
					t.Run(row.name, func(t *testing.T) {
						bareServer, bareClient := listen(t, protocol, row.handle)
						srv, client := listen(t, protocol, keyed(ring, o, row.handle))
						h := http.Header{"Authorization": {"Bearer " + token}, "Idempotency-Key": {protocol + mode + row.name}}

						bare := look(t, bareClient, bareServer.URL, h).without("Date")
						first := look(t, client, srv.URL, h).without("Date")
						again := look(t, client, srv.URL, h).without("Date")
						if len(first.Header["Svc-Request-Id"]) != 1 || len(again.Header["Svc-Request-Id"]) != 1 || reflect.DeepEqual(first.Header["Svc-Request-Id"], again.Header["Svc-Request-Id"]) {
							t.Errorf("Svc-Request-Id: first %q, replay %q, want two different ids", first.Header["Svc-Request-Id"], again.Header["Svc-Request-Id"])
						}
						if got := first.without("Svc-Request-Id"); !reflect.DeepEqual(got, bare) {
							t.Errorf("first response:\n got %+v\nwant %+v", got, bare)
						}
						if mode == "joined" && bare.Status >= 500 {
							if again.Header["Idempotent-Replayed"] != nil {
								t.Errorf("a rolled back %d was replayed", bare.Status)
							}
							return
						}
						if !reflect.DeepEqual(again.Header["Idempotent-Replayed"], []string{"true"}) || !reflect.DeepEqual(again.Header["Svc-Original-Request-Id"], first.Header["Svc-Request-Id"]) {
							t.Errorf("replay has Idempotent-Replayed %q and Svc-Original-Request-Id %q, want true and %q", again.Header["Idempotent-Replayed"], again.Header["Svc-Original-Request-Id"], first.Header["Svc-Request-Id"])
						}
						want := bare.without("Set-Cookie", "Trailer")
						want.Informed = nil
						if len(bare.Trailer) > 0 || slices.Contains([]string{"declared trailer", "undeclared trailer"}, row.name) {
							// Without trailers the length is known.
							want.Trailer, want.Length, want.Coding = nil, int64(len(bare.Body)), nil
							want.Header.Set("Content-Length", fmt.Sprint(len(bare.Body)))
						}
						if got := again.without("Svc-Request-Id", "Svc-Original-Request-Id", "Idempotent-Replayed"); !reflect.DeepEqual(got, want) {
							t.Errorf("replay:\n got %+v\nwant %+v", got, want)
						}
					})
				}
			})
		}
	}
}

// TestDeclaredLength: what a handler writes beyond its Content-Length is not
// sent, and a body that falls short of it looks whole neither to the first
// client nor to a repeat.
func TestDeclaredLength(t *testing.T) {
	rows := []struct {
		name   string
		handle http.HandlerFunc
		broken bool
	}{
		{"beyond", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, err := fmt.Fprint(w, "hello")
			_, more := fmt.Fprint(w, "more")
			if err != nil || more != http.ErrContentLength {
				panic(fmt.Sprintf("Write within and beyond the length: %v, %v", err, more))
			}
		}, false},
		{"short", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.Header().Set("Location", "/a")
			w.WriteHeader(201)
			fmt.Fprint(w, "hello")
		}, true},
	}
	ring := newKeyring()
	token := ring.issue(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			srv, client := listen(t, "HTTP/1.1", keyed(ring, middleware.Options{}, row.handle))
			ask := func() (*http.Response, string, error) {
				r := request("POST", srv.URL, token, "{}", "Idempotency-Key: a")
				r.RequestURI = ""
				res, err := client.Do(r)
				if err != nil {
					return nil, "", err
				}
				defer res.Body.Close()
				body, err := io.ReadAll(res.Body)
				return res, string(body), err
			}
			_, body, err := ask()
			if body != "hello" || (err != nil) != row.broken {
				t.Errorf("first response: body %q, error %v, want an error: %t", body, err, row.broken)
			}
			res, body, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			if row.broken {
				p := answer{res, body}.problem(t)
				if res.StatusCode != 409 || p.Code != "idempotency_response_not_retained" || p.OriginalStatus != 201 || p.OriginalLocation != "/a" {
					t.Errorf("repeat: %d %s, want 409 that says 201 and /a", res.StatusCode, body)
				}
			} else if res.StatusCode != 200 || body != "hello" {
				t.Errorf("repeat: %d %q, want 200 hello", res.StatusCode, body)
			}
		})
	}
}
