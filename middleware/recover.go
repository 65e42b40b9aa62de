package middleware

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/sallyport-go/sallyport/middleware/internal/redact"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// Recover answers a panic with 500 and keeps the connection. If the response is
// already committed, it aborts the connection, so that a truncated body is
// never taken for a whole one. The panic and its stack go to the log without
// the request's API key. http.ErrAbortHandler passes through without a log
// line, as in net/http.
//
// It SHOULD stand directly inside [Guard.RequestID]; without one outside, it
// adds one.
func (g *Guard) Recover(next http.Handler) http.Handler {
	var alone, inside http.Handler
	inside = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(w)
		if x == nil {
			alone.ServeHTTP(w, r)
			return
		}
		w = x.trackCommit(w, r)
		before := w.Header().Clone()
		defer func() {
			if p := recover(); p != nil {
				g.recovered(w, r, p, before)
			}
		}()
		next.ServeHTTP(w, r)
	})
	alone = g.RequestID(inside)
	return inside
}

// recovered answers for a handler that panicked with p, or aborts.
func (g *Guard) recovered(w http.ResponseWriter, r *http.Request, p any, before http.Header) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	x := exchangeOf(w)
	g.logPanic(x, r, p)
	x.note(func(e *Event) { e.Stage, e.Outcome = StageRecover, codeInternal })
	if response.Committed(w) {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	clear(h)
	maps.Copy(h, before)
	g.writeProblem(x, w, r, refusal(codeInternal))
}

// logPanic logs a panic while the response of x, or nil, was made.
func (g *Guard) logPanic(x *exchange, r *http.Request, p any) {
	g.hooks(r).logger().Error("panic while serving a request",
		slog.String("request_id", x.idOr(r.Context())), slog.String("method", r.Method), slog.String("path", g.redacted(r.URL.Path, x, r)),
		slog.String("panic", g.redacted(fmt.Sprintf("%+v", p), x, r)), slog.String("stack", g.redacted(string(debug.Stack()), x, r)))
}

// redacted removes credentials from a text: a handler may panic with the
// request itself, with an error that quotes it, or with a part of the key.
// Credentials are those of the request and of requests outside it, and every
// text of the form of an API key.
func (g *Guard) redacted(text string, x *exchange, r *http.Request) string {
	var secrets []string
	for name, values := range r.Header {
		if secretHeader.MatchString(name) {
			secrets = append(secrets, values...)
		}
	}
	for _, keys := range g.keys {
		secrets = append(secrets, r.Header[keys.Header]...)
	}
	if x != nil {
		secrets = append(secrets, x.authorization, x.apiKey)
	}
	for f := factsOf(r.Context()); f != nil; f = factsOf(f.Context) {
		if f.response != nil {
			secrets = append(secrets, f.response.authorization, f.response.apiKey)
		}
	}
	for _, value := range secrets {
		text = redact.Header(text, value)
	}
	return g.keyShapes().ReplaceAllLiteralString(text, "[secret]")
}

// keyShapes matches every text of the form of an API key.
func (g *Guard) keyShapes() *regexp.Regexp {
	patterns := []string{g.options.Keys.Format.Pattern()}
	for _, keys := range g.keys {
		patterns = append(patterns, keys.Format.Pattern())
		for _, legacy := range keys.Format.Legacy {
			if len(legacy.Prefix) > 3 { // a shorter one would hide words
				patterns = append(patterns, regexp.QuoteMeta(legacy.Prefix)+`[^\s"'\\,;<>(){}\[\]]{8,}`)
			}
		}
	}
	return regexp.MustCompile(strings.Join(patterns, "|"))
}

var secretHeader = regexp.MustCompile(`(?i)authorization|cookie|key|token|secret|password`)
