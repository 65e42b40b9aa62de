package middleware

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// Recover answers a panic with 500 and keeps the connection. If the response is
// already committed, it aborts the connection, so that a truncated body is
// never taken for a whole one. The panic and its stack, which has no arguments,
// go to the log without the request's credentials: no eight characters of one
// in a row. A credential of less than four characters stays. A text of more
// than 8 KiB is cut. If the credentials are more than 8 KiB, the type of the
// panic replaces its text. http.ErrAbortHandler passes through without a log
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
	secrets := g.secrets(x, r)
	// The first line names the goroutine and may have its labels. Arguments may
	// be bytes of a secret. What is left is the same for all requests.
	_, stack, _ := bytes.Cut(debug.Stack(), []byte("\n"))
	text := secrets.Redact(fmt.Sprintf("%+v", p))
	if text == redact.LeftOut {
		text = fmt.Sprintf("%T: %s", p, text)
	}
	g.hooks(r).logger().Error("panic while serving a request",
		slog.String("request_id", x.idOr(r.Context())), slog.String("method", g.method(r)), slog.String("path", secrets.Redact(r.URL.Path)),
		slog.String("panic", text), slog.String("stack", string(stackArguments.ReplaceAll(stack, []byte("(...)")))))
}

var stackArguments = regexp.MustCompile(`(?m)\([^()\n]*\)$`)

// secrets returns the credentials of a request, to keep them out of the log: a
// handler may panic with the request itself, with an error that quotes it, or
// with a part of the key. They are those of the request and of requests outside
// it, and every text of the form of an API key.
func (g *Guard) secrets(x *exchange, r *http.Request) *redact.Secrets {
	s := &redact.Secrets{Shapes: g.shapes}
	if g.shapes == nil { // the Guard of WriteProblem
		s.Shapes = contractKey
	}
	for name, values := range r.Header {
		if !s.Spend(1) {
			break
		}
		if secretHeader.MatchString(name) || slices.ContainsFunc(g.keys, func(keys *keyAuthenticator) bool { return keys.Header == name }) {
			s.AddHeaders(values...)
		}
	}
	if x != nil {
		s.AddHeaders(x.authorization, x.apiKey)
	}
	for f := factsOf(r.Context()); f != nil; f = factsOf(f.Context) {
		if f.response != nil && f.response != x {
			s.AddHeaders(f.response.authorization, f.response.apiKey)
		}
	}
	return s
}

// keyShapes matches every text that begins like an API key of these services,
// so that one cut short matches too.
func keyShapes(services ...keystore.Service) *regexp.Regexp {
	var patterns []string
	for _, s := range services {
		whole := s.Pattern()
		patterns = append(patterns, whole[:strings.LastIndexByte(whole, '{')]+"{8,}")
		for _, legacy := range s.Legacy {
			if len(legacy.Prefix) > 3 { // a shorter one would hide words
				patterns = append(patterns, regexp.QuoteMeta(legacy.Prefix)+`[^\s"'\\,;<>(){}\[\]]{8,}`)
			}
		}
	}
	return regexp.MustCompile(strings.Join(patterns, "|"))
}

var contractKey = keyShapes(keystore.Service{})

var secretHeader = regexp.MustCompile(`(?i)authorization|cookie|key|token|secret|password`)
