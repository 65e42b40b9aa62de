package reference

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
)

// WriteHeader gives the response its id, because only now its status is known.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	x.status = status
	if x.identified() {
		x.Header()["Svc-Request-Id"] = x.ids()
	} else {
		x.Header().Del("Svc-Request-Id")
	}
	if x.s.has("secret-in-header") {
		x.Header().Set("X-Debug-Key", x.token)
	}
	x.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the methods below.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// identified reports whether the response has an id.
func (x *exchange) identified() bool {
	has, status := x.s.has, x.status
	missing := !strings.HasPrefix(x.token, "Bearer ")
	switch {
	case has("id-absent"),
		has("id-absent-200") && status == 200 && x.r.Method == "GET",
		has("id-absent-201") && status == 201 && !x.replay,
		has("id-absent-missing-key") && status == 401 && missing,
		has("id-absent-bad-key") && status == 401 && !missing,
		has("id-absent-replay") && x.replay,
		has("id-absent-head") && x.r.Method == "HEAD",
		has("id-absent-options") && x.r.Method == "OPTIONS",
		has("id-absent-cut") && x.cut,
		has("id-absent-at-once") && status == 401 && x.r.ContentLength == 1000,
		has("id-absent-redirect") && status == http.StatusPermanentRedirect,
		has("id-absent-http2") && x.r.ProtoMajor == 2,
		has(fmt.Sprintf("id-absent-%d", status)) && status > 201:
		return false
	}
	return true
}

func (x *exchange) ids() []string {
	s := x.s
	switch {
	case s.has("id-empty"):
		return []string{""}
	case s.has("id-twice"):
		return []string{rand.Text(), rand.Text()}
	case s.has("id-constant"):
		return []string{"req_1"}
	case s.has("attack-id-of-creates") && x.r.Method == "POST" && x.r.Header.Get("Idempotency-Key") != "":
		return []string{"req_create"}
	case s.has("id-per-connection"):
		return []string{x.conn.id}
	case s.has("id-per-key") && x.key != nil:
		return []string{"req_" + x.key.org + x.key.env}
	case s.has("id-recycled"):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ids++
		return []string{fmt.Sprint("req_", s.ids%16)}
	case s.has("id-is-the-secret") && x.key != nil:
		return []string{rand.Text() + strings.TrimPrefix(x.token, "Bearer ")}
	case s.has("id-from-client") && x.r.Header.Get("Svc-Request-Id") != "":
		return []string{x.r.Header.Get("Svc-Request-Id")}
	case s.has("idem-same-id") && x.Header()["Svc-Request-Id"] != nil:
		return x.Header()["Svc-Request-Id"]
	}
	return []string{rand.Text()}
}
