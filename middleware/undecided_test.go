package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// successes are handlers that succeed in all the ways there are.
var successes = map[string]http.HandlerFunc{
	"nothing":             steps(),
	"Write":               func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("deleted")) },
	"WriteString":         steps("deleted"),
	"a status and fields": steps("Location: /deleted", "Content-Length: 7", "201", "deleted", "202"),
	"204":                 steps("204"),
	"Flush":               func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
	"a stream": func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "deleted")
			_ = http.NewResponseController(w).Flush()
		}
	},
	"ReadFrom": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("deleted", 1<<16)))
	},
	"a part": func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Range", "bytes=0-6")
		http.ServeContent(w, r, "a.txt", time.Time{}, bytes.NewReader(bytes.Repeat([]byte("deleted"), 1<<10)))
	},
	"early hints": steps("103", "deleted"),
	"101":         steps("101"), // over HTTP/2 an interim response
	"Hijack": func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ndeleted")
		_ = rw.Flush()
		_ = conn.Close()
	},
}

// TestSuccessWithoutDecision: behind a Guard's Authenticate a success that no
// Enforce let through is a 500, however it is sent and whatever
// stands in between.
func TestSuccessWithoutDecision(t *testing.T) {
	ring := newKeyring()
	token, log := ring.issue(t), newLogged()
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks()})
	outer := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, hangs, "") }
	between := func(h http.Handler) http.Handler { return http.HandlerFunc(h.ServeHTTP) }
	for form, chain := range map[string]func(http.Handler) http.Handler{
		"pieces":                   outer,
		"apart":                    middleware.Chain(g.RequestID, between, g.Recover, between, g.Authenticate, between),
		"without RequestID":        g.Authenticate,
		"behind a foreign writer":  middleware.Chain(g.RequestID, foreignWriter, g.Authenticate),
		"before a foreign writer":  middleware.Chain(outer, foreignWriter),
		"inside an Unwrap":         middleware.Chain(unwrapping, outer),
		"behind TimeoutHandler":    middleware.Chain(g.RequestID, timeout, g.Authenticate),
		"before TimeoutHandler":    middleware.Chain(outer, timeout),
		"a second Guard":           middleware.Chain(outer, anyCaller(g), g.Authenticate),
		"RequestID inside":         middleware.Chain(g.Authenticate, g.RequestID, g.Recover),
		"a buffer that shows what": middleware.Chain(g.RequestID, heldBack, g.Authenticate),
		"a caller by hand":         middleware.Chain(outer, as(by(t, "user"))),
	} {
		for name, h := range successes {
			for _, protocol := range protocols {
				if form == "behind TimeoutHandler" && (name == "early hints" || name == "101") {
					continue // it takes a 1xx for the final status
				}
				srv, client := listen(t, protocol, chain(h))
				before := len(log.String())
				a := do(t, client, newRequest(t, "DELETE", srv.URL+"/tasks/1", token, nil))
				if a.StatusCode != 500 || a.Header.Get("Location") != "" || strings.Contains(a.body, "deleted") ||
					a.problem(t).Code != "internal" {
					t.Errorf("%s, %s, %s: got %d %v %.80q, want 500", form, name, protocol, a.StatusCode, a.Header, a.body)
				}
				if form != "without RequestID" && form != "RequestID inside" {
					wantID(t, a.Response)
				}
				line := log.String()[before:]
				if strings.Count(line, "a route has no Enforce") != 1 || !strings.Contains(line, "level=ERROR") ||
					!strings.Contains(line, "its handler ran") || !strings.Contains(line, "method=DELETE path=/tasks/1") {
					t.Errorf("%s, %s, %s: got the log %q", form, name, protocol, line)
				}
			}
		}
	}
}

// heldBack holds back what a handler writes until it has returned, as
// compression does.
var heldBack = foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
	b := &holder{ResponseWriter: w}
	h.ServeHTTP(b, r)
	if b.status != 0 {
		w.WriteHeader(b.status)
		_, _ = b.body.WriteTo(w)
	}
})

type holder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (b *holder) WriteHeader(status int) {
	if status >= 200 {
		b.status = status
	}
}

func (b *holder) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.status = 200
	}
	return b.body.Write(p)
}

func (b *holder) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// TestSuccessWithDecision: what was decided is sent as it is, and so is what a
// router answers by itself.
func TestSuccessWithDecision(t *testing.T) {
	ring := newKeyring()
	token, log := ring.issue(t, scope.TasksWrite), newLogged()
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks()})
	other := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks()})
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, hangs, "") }
	any, deleted := g.Enforce(middleware.AnyCaller()), http.Handler(successes["Write"])
	outer := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)
	api := middleware.NewAPI(ring.keys, middleware.Options{Base: "/", Hooks: log.hooks()})
	api.Handle("DELETE /tasks/{id}", middleware.AnyCaller(), deleted)
	mux := http.NewServeMux()
	mux.Handle("GET /tasks/{id}/", any(deleted))
	for name, tt := range map[string]struct {
		h    http.Handler
		want int
	}{
		"AnyCaller":                 {outer(any(deleted)), 200},
		"Require":                   {outer(g.Enforce(middleware.Require(scope.TasksWrite))(deleted)), 200},
		"report-only":               {outer(g.Enforce(middleware.Require(scope.TasksRead).ReportOnly())(deleted)), 200},
		"the Enforce of another":    {outer(other.Enforce(middleware.Require(scope.TasksWrite))(deleted)), 200},
		"nothing written":           {outer(any(steps("200"))), 200},
		"without RequestID":         {anyCaller(g)(deleted), 200},
		"RequestID inside":          {middleware.Chain(g.Authenticate, g.RequestID, g.Recover, any)(deleted), 200},
		"behind a foreign writer":   {middleware.Chain(g.RequestID, foreignWriter, anyCaller(g))(deleted), 200},
		"between foreign writers":   {middleware.Chain(foreignWriter, outer, foreignWriter, any)(deleted), 200},
		"TimeoutHandler everywhere": {middleware.Chain(timeout, g.RequestID, timeout, anyCaller(g), timeout)(deleted), 200},
		"a second Guard":            {middleware.Chain(outer, anyCaller(other))(deleted), 200},
		"an API inside":             {outer(api), 200},
		"a caller by hand":          {middleware.Chain(outer, as(by(t, "user")), any)(deleted), 200},
		"a buffer":                  {middleware.Chain(g.RequestID, heldBack, g.Authenticate, any)(deleted), 200},
		"outside Authenticate":      {middleware.Chain(g.RequestID, g.Recover)(deleted), 200},
		"404 of a mux":              {outer(http.NewServeMux()), 404},
		"404 through a buffer":      {middleware.Chain(g.RequestID, heldBack, g.Authenticate)(http.NotFoundHandler()), 404},
		"405 of a mux":              {outer(mux), 405},
		"300":                       {outer(steps("300")), 300},
		"304":                       {outer(steps("304")), 304},
		"500 of a handler":          {outer(steps("503")), 503},
		"a panic":                   {outer(steps("panic")), 500},
	} {
		for _, protocol := range protocols {
			srv, client := listen(t, protocol, tt.h)
			a := do(t, client, newRequest(t, "DELETE", srv.URL+"/tasks/1/", token, nil))
			if name == "an API inside" {
				a = do(t, client, newRequest(t, "DELETE", srv.URL+"/tasks/1", token, nil))
			}
			wantAnswer(t, fmt.Sprintf("%s, %s", name, protocol), a, tt.want)
		}
	}
	srv, client := listen(t, "HTTP/1.1", outer(mux))
	wantAnswer(t, "a redirect of the mux", do(t, client, newRequest(t, "GET", srv.URL+"/tasks/1", token, nil)), 307)
	if text := log.String(); strings.Contains(text, "no Enforce") {
		t.Errorf("got the log %s", text)
	}
}

// TestDecisionIsOfItsRequest: a decision about a request that a handler sends
// does not hold for the handler's own, and the other way around.
func TestDecisionIsOfItsRequest(t *testing.T) {
	ring, token := oneKey(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	outer := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)
	any, ok := g.Enforce(middleware.AnyCaller()), sayOK
	inAPI := func(h http.Handler) http.Handler {
		return apiOf(ring.keys, middleware.Options{Hooks: quiet()}, middleware.AnyCaller(), h.ServeHTTP)
	}
	within := func(inner http.Handler, want int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := request("GET", "/api/v1/x", token, "").WithContext(r.Context())
			wantAnswer(t, "the request within", serve(inner, own), want)
			sayOK(w, r)
		})
	}
	for name, tt := range map[string]struct {
		h    http.Handler
		want int
	}{
		"decided within, by pieces":  {outer(within(outer(any(ok)), 200)), 500},
		"decided within, by an API":  {outer(within(inAPI(ok), 200)), 500},
		"decided outside":            {outer(any(within(outer(ok), 500))), 200},
		"decided outside, by an API": {inAPI(within(outer(ok), 500)), 200},
		"decided within and outside": {outer(any(within(outer(any(ok)), 200))), 200},
		"refused within, AnyCaller out": {outer(any(within(
			outer(g.Enforce(middleware.Require(scope.TasksRead))(ok)), 403))), 200},
	} {
		wantAnswer(t, name, serve(tt.h, request("GET", "/api/v1/x", token, "")), tt.want)
	}
}

// TestUndecidedKeepsOuterFields: of the fields, those of stages outside stay,
// such as those of CORS, and the Event tells what happened.
func TestUndecidedKeepsOuterFields(t *testing.T) {
	ring := newKeyring()
	token, log := ring.issue(t), newLogged()
	o := &observed{t: t}
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(o.note)})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /keys/{id}", steps("Set-Cookie: session=secret", "201"))
	h := middleware.Chain(cors, g.RequestID, g.Recover, g.Authenticate)(mux)
	e, a := o.ask(h, request("POST", "/keys/"+token, token, ""))
	wantRefusal(t, "undecided", a, 500, "internal", "")
	if a.Header.Get("Set-Cookie") != "" || a.Header.Get("Access-Control-Allow-Origin") != "https://shop.example" {
		t.Errorf("got the header %v", a.Header)
	}
	if e.Status != 500 || e.Stage != middleware.StageScope || e.Outcome != "internal" || e.Pattern != "POST /keys/{id}" {
		t.Errorf("got the Event %+v", e)
	}
	if line := log.String(); !strings.Contains(line, `pattern="POST /keys/{id}"`) || strings.Contains(line, token) ||
		!strings.Contains(line, "path=/keys/") {
		t.Errorf("got the log %s", line)
	}
}

// TestUndecidedNamesTheRoute: the line of the log has the pattern that
// Hooks.Pattern finds, also without Observe, and that of ServeMux.
func TestUndecidedNamesTheRoute(t *testing.T) {
	ring, token := oneKey(t)
	mux := http.NewServeMux()
	mux.HandleFunc("DELETE /tasks/{id}", sayOK)
	find := func(*http.Request) string { return "/tasks/:id" }
	for name, tt := range map[string]struct {
		find func(*http.Request) string
		h    http.Handler
		want string
	}{
		"a router":                 {find, sayOK, "pattern=/tasks/:id"},
		"ServeMux":                 {nil, mux, `pattern="DELETE /tasks/{id}"`},
		"ServeMux, found nothing":  {func(*http.Request) string { return "" }, mux, `pattern="DELETE /tasks/{id}"`},
		"ServeMux inside a router": {find, mux, "pattern=/tasks/:id"},
		"a hook that panics":       {func(*http.Request) string { panic("boom") }, mux, `pattern="DELETE /tasks/{id}"`},
	} {
		log := newLogged()
		hooks := log.hooks()
		hooks.Pattern = tt.find
		g := middleware.New(ring.keys, middleware.Options{Hooks: hooks})
		a := serve(middleware.Chain(g.RequestID, g.Authenticate)(tt.h), request("DELETE", "/tasks/1", token, ""))
		if a.StatusCode != 500 || !strings.Contains(log.String(), tt.want) {
			t.Errorf("%s: got %d and the log %s, want %s in it", name, a.StatusCode, log, tt.want)
		}
	}
}
