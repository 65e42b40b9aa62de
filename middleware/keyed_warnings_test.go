package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// lateAdapter puts a stage into a router whose handlers return errors, and
// writes the response for an error when the stage has ended, as echo's
// WrapMiddleware does. It wraps the handler anew for each request.
func lateAdapter(stage func(http.Handler) http.Handler,
	handle func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		stage(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
			w = inner
			err = handle(inner, r)
		})).ServeHTTP(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
}

// TestLateResponse: a response that is written after the stage has ended is an
// error in the log. The empty 200 in its place is not replayed, as long as the
// store remembers it.
func TestLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, log, runs := newKeyring(), newLogged(), 0
		token := ring.issue(t)
		g := middleware.New(ring.keys, logging(log, keyedOptions{Runner: replies()}))
		adapter := lateAdapter(g.Idempotent, func(w http.ResponseWriter, r *http.Request) error {
			runs++
			switch r.Header.Get("Do") {
			case "write":
				_, err := io.WriteString(w, "fine")
				return err
			case "free":
				middleware.ExecutionFrom(r.Context()).Free()
			}
			return errors.New("no such task")
		})
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))(adapter)
		ask := func(key, do string) answer { return serve(h, post(token, key, "Do: "+do)) }
		if a := serve(h, request("POST", "/", token, "{}")); a.StatusCode != 422 || log.String() != "" {
			t.Errorf("without a key: %d, log %q", a.StatusCode, log)
		}
		for range 2 {
			if a := ask("fine", "write"); a.StatusCode != 200 || a.body != "fine" || log.String() != "" {
				t.Errorf("a handler that writes: %d %s, log %q", a.StatusCode, a.body, log)
			}
		}
		ask("freed", "free")
		wantAnswer(t, "after Free", ask("freed", "write"), 200, "fine")
		runs = 0
		id := ask("a", "").Header.Get("Svc-Request-Id")
		_, text, _ := strings.Cut(log.String(), "level=ERROR")
		if strings.Count(text, "after the Idempotent stage had ended") != 1 || !strings.Contains(text, id) {
			t.Errorf("the log has %q", text)
		}
		for range 2 {
			if got := ask("a", "").outcome(t); got != notRetained || runs != 1 {
				t.Errorf("repeat: %v with %d runs, want 409", got, runs)
			}
		}
		if a := ask("fine", "write"); !a.replayed() {
			t.Errorf("another key: %d %s, want its replay", a.StatusCode, a.body)
		}
		time.Sleep(48 * time.Hour)
		if ask("a", "write"); runs != 2 {
			t.Errorf("after the retention: %d runs, want 2", runs)
		}
	})
}

// TestResponsePastTheStage: a response that is sent past the stage is an error
// in the log, and is not replayed as what the stage saw.
func TestResponsePastTheStage(t *testing.T) {
	for name, row := range map[string]struct {
		inner    int  // the status that the stage sees; the client gets 201
		all      bool // past all stages: a router's own writer tells that it was written to
		original int  // that repeats are told
	}{"nothing seen": {0, false, 201}, "another response seen": {422, false, 201}, "past all stages": {0, true, 0}} {
		ring, log, runs := newKeyring(), newLogged(), 0
		token := ring.issue(t)
		g := middleware.New(ring.keys, logging(log, keyedOptions{Runner: replies()}))
		before := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))
		var past http.ResponseWriter
		stage := g.Idempotent(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
			runs++
			past.WriteHeader(201)
			if row.inner != 0 {
				http.Error(inner, "refused", row.inner)
			}
		}))
		note := wrapping(func(w http.ResponseWriter) http.ResponseWriter {
			if past = w; row.all {
				past = &written{ResponseWriter: w}
			}
			return past
		})
		h := before(note(stage))
		if row.all {
			h = note(before(stage))
		}
		wantAnswer(t, name+", the handler's alone", serve(h, post(token, "a")), 201, "")
		text := log.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "sent past the Idempotent stage") {
			t.Errorf("%s: the log has %q", name, text)
		}
		p := serve(h, post(token, "a")).problem(t)
		if p.Code != "idempotency_response_not_retained" || p.OriginalStatus != row.original || runs != 1 {
			t.Errorf("%s: the repeat got %+v with %d runs", name, p, runs)
		}
	}
}

// written is a writer that tells whether it was written to, as gin's does.
type written struct {
	http.ResponseWriter
	status int
}

func (w *written) Written() bool { return w.status != 0 }

func (w *written) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// TestBufferInPlaceOfTheWriter: an adapter hands on the request, and in place of
// the stage's writer one of its own, which sends when the stage has ended. What
// the client gets is not what the stage saw.
func TestBufferInPlaceOfTheWriter(t *testing.T) {
	tests := []struct {
		name          string
		handle        http.HandlerFunc
		first, repeat outcome
		logs          string
	}{
		{"with a header", steps("Location: /a", "201", "made"), outcome{201, "", "made"}, notRetained, "sent past"},
		{"without a header", steps("201", "made"), outcome{201, "", "made"}, notRetained, "sent past"},
		{"implicit 200", steps("made"), outcome{200, "", "made"}, notRetained, "sent past"},
		{"status alone", steps("204"), outcome{204, "", ""}, notRetained, "sent past"},
		{"nothing", steps(), outcome{200, "", ""}, outcome{200, "", ""}, "wrote nothing"},
	}
	for _, plain := range []bool{false, true} {
		for _, joined := range []bool{false, true} {
			for _, tt := range tests {
				name := fmt.Sprintf("%s, hides the writer beneath %t, joined %t", tt.name, plain, joined)
				ring, log, runs := newKeyring(), newLogged(), 0
				token := ring.issue(t)
				o := logging(log, keyedOptions{Runner: replies()})
				if joined {
					o.Idempotency.Runner = joining(newJoiner())
				}
				g := middleware.New(ring.keys, o)
				var past http.ResponseWriter
				stage := g.Idempotent(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					runs++
					tt.handle(past, r)
				}))
				note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					past = w
					stage.ServeHTTP(w, r)
				})
				adapter := buffer(note)
				if plain { // which sends at once
					adapter = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						note.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
					})
				}
				h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))(adapter)
				if got := serve(h, post(token, "a")).outcome(t); got != tt.first {
					t.Errorf("%s: got %v, want %v", name, got, tt.first)
				}
				text := log.String()
				if !strings.Contains(text, tt.logs) {
					t.Errorf("%s: the log has %q, want %q in it", name, text, tt.logs)
				}
				for range 2 {
					if got := serve(h, post(token, "a")).outcome(t); got != tt.repeat || runs != 1 {
						t.Errorf("%s: the repeat got %v with %d runs, want %v", name, got, runs, tt.repeat)
					}
				}
				// Another process knows what is stored. What is found out at the
				// end of the response, after that, it does not know.
				repeat := tt.repeat
				if !plain && tt.name != "with a header" {
					repeat = outcome{200, "", ""}
				}
				other := middleware.New(ring.keys, o)
				h = middleware.Chain(other.RequestID, other.Authenticate, other.Enforce(middleware.AnyCaller()),
					other.Idempotent)(http.HandlerFunc(tt.handle))
				if got := serve(h, post(token, "a")).outcome(t); got != repeat {
					t.Errorf("%s: the repeat in another process got %v, want %v", name, got, repeat)
				}
			}
		}
	}
}

// TestRetryStatuses: a stored response that asks for a retry is one line in the
// log for a route and status, with the two ways out. The stage is applied anew
// for each request, as echo does.
func TestRetryStatuses(t *testing.T) {
	for _, row := range []struct {
		statuses []int // of the handler, in turn
		want     int
	}{
		{[]int{401}, 0}, {[]int{403}, 0}, {[]int{500}, 0}, {[]int{501}, 0}, {[]int{425}, 1}, {[]int{429}, 1},
		{[]int{502}, 1}, {[]int{503}, 1}, {[]int{504}, 1}, {[]int{503, 429}, 2},
	} {
		for _, frees := range []bool{false, true} {
			ring, log := newKeyring(), newLogged()
			token := ring.issue(t)
			o := logging(log, keyedOptions{Runner: replies()})
			if frees {
				o.Idempotency.FreeOn, row.want = row.statuses, 0
			}
			runs := 0
			g := middleware.New(ring.keys, o)
			answers := func(w http.ResponseWriter, r *http.Request) error {
				w.WriteHeader(row.statuses[runs%len(row.statuses)])
				runs++
				return nil
			}
			stages := middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()))
			h := stages(lateAdapter(g.Idempotent, answers))
			for _, key := range []string{"a", "a", "b"} {
				serve(h, post(token, key))
			}
			text := log.String()
			if strings.Count(text, "\n") != row.want || strings.Count(text, "Execution.Free") != row.want ||
				strings.Count(text, "FreeOn") != row.want {
				t.Errorf("%v, in FreeOn %t: the log has %q, want %d lines", row.statuses, frees, text, row.want)
			}
		}
	}
}
