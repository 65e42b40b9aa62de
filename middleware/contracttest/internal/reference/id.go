package reference

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// WriteHeader gives the response its id, because only now its status is known.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	x.status = status
	switch {
	case x.s.has("id-trailer"):
		x.Header().Set(http.TrailerPrefix+"Svc-Request-Id", rand.Text())
	case x.s.has(fmt.Sprintf("id-absent-%d", status)) && status > 204, x.s.any(absent, x):
		x.Header().Del("Svc-Request-Id")
	default:
		x.Header()["Svc-Request-Id"] = x.ids()
	}
	if x.s.has("secret-in-header") {
		x.Header().Set("X-Debug-Key", x.token)
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the methods below.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// absent are the defects that leave the id out.
var absent = map[string]when{
	"id-absent":             func(x *exchange) bool { return true },
	"id-absent-200":         func(x *exchange) bool { return x.status == 200 && x.r.Method == "GET" },
	"id-absent-201":         func(x *exchange) bool { return x.status == 201 && !x.replay },
	"id-absent-missing-key": func(x *exchange) bool { return x.status == 401 && bearer(x.token) == "" },
	"id-absent-bad-key":     func(x *exchange) bool { return x.status == 401 && bearer(x.token) != "" },
	"id-absent-replay":      func(x *exchange) bool { return x.replay },
	"id-absent-shape": func(x *exchange) bool {
		return x.status == 401 && x.token != "" && !strings.Contains(x.token, "_")
	},
	"id-absent-preflight": sent("Access-Control-Request-Method"),
	"id-absent-head":      func(x *exchange) bool { return x.r.Method == "HEAD" },
	"id-absent-options":   func(x *exchange) bool { return x.r.Method == "OPTIONS" },
	"id-absent-cut":       func(x *exchange) bool { return x.cut },
	"id-absent-at-once":   func(x *exchange) bool { return x.status == 401 && x.r.ContentLength == 1000 },
	"id-absent-redirect":  func(x *exchange) bool { return x.status == http.StatusPermanentRedirect },
	"id-absent-http2":     func(x *exchange) bool { return x.r.ProtoMajor == 2 },
	"id-absent-http10":    func(x *exchange) bool { return !x.r.ProtoAtLeast(1, 1) },
	"id-absent-range":     sent("Range"),
	"id-absent-origin":    func(x *exchange) bool { return sent("Origin")(x) && x.r.Method == "GET" },
	"id-absent-expect":    sent("Expect"),
	"id-absent-gzip":      func(x *exchange) bool { return strings.Contains(x.r.Header.Get("Accept-Encoding"), "gzip") },
	"id-absent-query":     func(x *exchange) bool { return x.r.URL.RawQuery != "" },
	"id-absent-sandbox":   func(x *exchange) bool { return x.key != nil && x.key.env == "test" },
	"id-absent-item": func(x *exchange) bool {
		return x.status == 200 && strings.HasPrefix(x.r.URL.Path,
			Tasks+"/")
	},
	"id-absent-text":  func(x *exchange) bool { return x.r.Header.Get("Content-Type") == "text/plain" },
	"id-absent-third": func(x *exchange) bool { return x.r.ProtoMajor == 1 && x.conn.requests > 2 },
	"id-absent-long":  func(x *exchange) bool { return x.size > 4096 },
	"id-absent-unsampled": func(x *exchange) bool {
		return strings.HasSuffix(x.r.Header.Get("Traceparent"), "-00")
	},
	"id-absent-204":       func(x *exchange) bool { return x.status == 204 && x.r.Method == "DELETE" },
	"id-absent-pipelined": func(x *exchange) bool { return x.pipelined },
	"id-absent-bad-percent": func(x *exchange) bool {
		_, err := url.QueryUnescape(x.r.URL.RawQuery)
		return x.status == 400 && err != nil
	},
	"id-absent-waf": func(x *exchange) bool { return x.status == 403 && suspicious(x.r) },
}

func (x *exchange) ids() []string {
	s := x.s
	switch {
	case s.has("id-empty"):
		return []string{""}
	case s.has("id-twice"):
		return []string{rand.Text(), rand.Text()}
	case s.has("id-binary"):
		return []string{strings.Map(func(r rune) rune { return r | 0x80 }, rand.Text())}
	case s.has("id-long"):
		return []string{strings.Repeat(rand.Text(), 400)}
	case s.has("id-constant"):
		return []string{"req_1"}
	case s.has("attack-id-of-creates") && x.r.Method == "POST" && x.r.Header.Get("Idempotency-Key") != "":
		return []string{"req_create"}
	case s.has("id-per-connection"):
		return []string{x.conn.id}
	case s.has("id-counts-connection"):
		return []string{fmt.Sprint("req_", x.conn.ids.Add(1))}
	case s.has("free-trace-id") && traceID(x.r) != "":
		return []string{traceID(x.r)}
	case s.has("id-zero-401") && x.status == http.StatusUnauthorized:
		return []string{"00000000-0000-0000-0000-000000000000"}
	case s.has("id-digest"):
		of := fmt.Sprint(x.r.Method, x.r.RequestURI, x.token, x.r.Header["Idempotency-Key"])
		return []string{fmt.Sprintf("req_%x", sha256.Sum256([]byte(of)))}
	case s.has("id-race"):
		next := 0
		s.locked(func() { next = s.ids + 1 })
		time.Sleep(time.Millisecond)
		s.locked(func() { s.ids = next })
		return []string{fmt.Sprint("req_", next)}
	case s.has("id-per-key") && x.key != nil:
		return []string{"req_" + x.key.org + x.key.env}
	case s.has("id-404-cached") && x.status == http.StatusNotFound && x.r.Method == http.MethodGet:
		return []string{s.idOfMissing(x)}
	case s.has("id-counts-environment") && x.key != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts[x.key.env]++
		return []string{fmt.Sprint("req_", s.counts[x.key.env])}
	case s.has("id-is-the-secret") && x.key != nil:
		return []string{rand.Text() + strings.TrimPrefix(x.token, "Bearer ")}
	case s.has("id-from-client") && x.r.Header.Get("Svc-Request-Id") != "":
		return []string{x.r.Header.Get("Svc-Request-Id")}
	case s.has("idem-same-id") && x.Header()["Svc-Request-Id"] != nil:
		return x.Header()["Svc-Request-Id"]
	}
	return []string{rand.Text()}
}

// traceID returns the second field of a traceparent, "" when there is none.
func traceID(r *http.Request) string {
	if fields := strings.Split(r.Header.Get("Traceparent"), "-"); len(fields) == 4 {
		return fields[1]
	}
	return ""
}

// suspicious is what a firewall takes for an attack.
func suspicious(r *http.Request) bool {
	query, _ := url.QueryUnescape(r.URL.RawQuery)
	return strings.Contains(query, "<script") || strings.Contains(query, "../")
}
