package reference

import (
	"crypto/rand"
	"crypto/sha256"
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
	switch {
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
	"id-absent-shape": func(x *exchange) bool {
		return x.status == 401 && x.token != "" && !strings.Contains(x.token, "_")
	},
	"id-absent-preflight": sent("Access-Control-Request-Method"),
}

func (x *exchange) ids() []string {
	s := x.s
	switch {
	case s.has("id-twice"):
		return []string{rand.Text(), rand.Text()}
	case s.has("id-long"):
		return []string{strings.Repeat(rand.Text(), 10)}
	case s.has("attack-id-of-creates") && x.r.Method == "POST" && x.r.Header.Get("Idempotency-Key") != "":
		return []string{"req_create"}
	case s.has("free-trace-id") && traceID(x.r) != "":
		return []string{traceID(x.r)}
	case s.has("id-digest"):
		of := fmt.Sprint(x.r.Method, x.r.RequestURI, x.token, x.r.Header["Idempotency-Key"])
		return []string{fmt.Sprintf("req_%x", sha256.Sum256([]byte(of)))}
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
