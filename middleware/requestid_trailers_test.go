package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

func TestNoOtherIDInTrailers(t *testing.T) {
	for _, protocol := range []string{"h1", "h2"} {
		for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
			for name, trail := range map[string]func(http.Header){
				"prefix": func(h http.Header) { h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed") },
				"another header vanished": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"another header vanished, lower case": func(h http.Header) {
					delete(h, "X-Early")
					h[http.TrailerPrefix+"svc-request-id"] = []string{"spoofed"}
				},
				"declared": func(h http.Header) { h.Set("Svc-Request-Id", "spoofed") },
			} {
				ring := newKeyring()
				api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
				api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Early", "1")
					if name == "declared" {
						w.Header().Set("Trailer", "Svc-Request-Id")
					}
					_, _ = io.WriteString(w, "body")
					trail(w.Header())
				})
				srv := httptest.NewUnstartedServer(api)
				srv.EnableHTTP2 = protocol == "h2"
				srv.StartTLS()
				got := do(t, srv.Client(), request("POST", srv.URL+"/api/v1/x", ring.issue(t), "{}", line))
				srv.Close()
				ids := got.Header["Svc-Request-Id"]
				if len(ids) != 1 {
					t.Fatalf("%s, %s, %s: got ids %q", protocol, line, name, ids)
				}
				for _, id := range got.Trailer["Svc-Request-Id"] {
					if id != ids[0] {
						t.Errorf("%s, %s, %s: the trailer has id %q, the header %q", protocol, line, name, id, ids[0])
					}
				}
			}
		}
	}
}
