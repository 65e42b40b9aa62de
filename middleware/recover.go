package middleware

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
)

// RecoverOptions configure [Recover].
type RecoverOptions struct {
	Hooks *Hooks
}

// Recover turns a panic into a response that does not lie. Before the response
// is committed, the client gets a clean 500 and the connection stays; after
// that, the connection is aborted, so that a truncated body never looks whole.
// The panic and its stack go to the log, without the request's API key if a
// handler panicked with that in hand, except http.ErrAbortHandler, which passes
// through in silence as net/http means it.
//
// It SHOULD stand directly inside [RequestID], so that the 500 and the log line
// carry the id.
func Recover(o RecoverOptions) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return &recoverer{o, pieceOf(next)} }
}

type recoverer struct {
	RecoverOptions
	following piece
}

func (h *recoverer) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *recoverer) serve(s *state, w http.ResponseWriter, r *http.Request) {
	s.heed(h.Hooks)
	w = s.dress(w)
	before := beyondID(s, w.Header())
	defer func() {
		if p := recover(); p != nil {
			s.recovered(w, r, p, before)
		}
	}()
	h.following.serve(s, w, r)
}

// beyondID returns a copy of what stages outside have set so far, nil when that
// is at most the request id.
func beyondID(s *state, h http.Header) http.Header {
	if len(h) == 0 || len(h) == 1 && s.header != "" && h[s.header] != nil {
		return nil
	}
	return h.Clone()
}

// restore leaves in h what beyondID has kept, and the id, for whoever looks for it
// before it is stamped.
func (s *state) restore(h, outside http.Header) {
	clear(h)
	maps.Copy(h, outside)
	if s.header != "" {
		h[s.header] = []string{s.id}
	}
}

func (s *state) recovered(w http.ResponseWriter, r *http.Request, p any, before http.Header) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.logPanic(r, p)
	s.observe(Event{Stage: StageRecover, Outcome: codeInternal})
	if coreOf(w).swallow || begun(w) {
		panic(http.ErrAbortHandler)
	}
	s.restore(w.Header(), before)
	s.unrouted = false
	s.writeProblem(w, r, problem(codeInternal))
}

func (s *state) logPanic(r *http.Request, p any) {
	s.hooks.logger().Error("panic while serving a request",
		slog.String("request_id", s.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("panic", s.withoutKey(fmt.Sprintf("%+v", p))), slog.String("stack", string(debug.Stack())))
}

// withoutKey takes the API key of the request out of a text that is not ours: a
// handler may panic with the request itself, or with an error that quotes it.
func (s *state) withoutKey(text string) string {
	for ; s != nil; s = s.parent {
		for _, value := range s.authorization {
			for _, part := range strings.Fields(value) {
				if len(part) > len("Bearer") {
					text = strings.ReplaceAll(text, part, "[secret]")
				}
			}
		}
	}
	return text
}
