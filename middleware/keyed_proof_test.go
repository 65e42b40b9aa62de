package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
)

// A proof is a cell of the table of TestProofs.
type proof struct {
	handler, end, kind, store, adapter string
}

// proofHandlers are the ways to use a writer around the end of the context, in
// steps: a status, a declared length, half of a body or a whole one, a flush of
// what streams, and what becomes of the context or the handler.
var proofHandlers = []struct{ name, steps string }{
	{"silent", "end"},
	{"half a body", "half end"},
	{"half a body after 201", "201 half end"},
	{"half of the declared body", "length=20 201 half end"},
	{"half of the declared body, at the end", "end length=20 201 half"},
	{"whole body", "length=10 201 whole end"},
	{"whole body, implicit 200", "length=10 whole end"},
	{"whole body, implicit 200 at the end", "end length=10 whole"},
	{"explicit status", "201 flush end"},
	{"explicit status, declared empty", "length=0 201 flush end"},
	{"explicit 200, at the end", "end 200 half"},
	{"explicit status, at the end", "end 201 whole"},
	{"explicit 204", "204 flush end"},
	{"explicit 304", "304 flush end"},
	{"422", "422 refused end"},
	{"504, at the end", "end 504 late"},
	{"panics", "201 half end panic"},
	{"Goexit", "201 half end goexit"},
}

var proofTexts = map[string]string{"half": "half of it", "whole": "all of it.", "refused": "not that..",
	"late": "too late..", "flush": ""}

// take takes the steps of a handler.
func take(steps string, w http.ResponseWriter, write func(text string), end func()) {
	for _, step := range strings.Fields(steps) {
		text, writes := proofTexts[step]
		status, err := strconv.Atoi(step)
		length, declares := strings.CutPrefix(step, "length=")
		switch {
		case writes:
			write(text)
		case declares:
			w.Header().Set("Content-Length", length)
		case step == "end":
			end()
		case step == "panic":
			panic("boom")
		case step == "goexit":
			runtime.Goexit()
		case err == nil:
			w.WriteHeader(status)
		}
	}
}

// impossible says why there is no such cell, "" if there is.
func (p proof) impossible() string {
	bodyless := p.handler == "silent" || strings.HasPrefix(p.handler, "explicit") && !strings.HasSuffix(p.handler, "end")
	switch {
	case p.end == "lost claim" && p.store == "memory":
		return "idem.Memory in the process itself has no leases"
	case p.end == "lost claim" && p.store == "joined":
		return "a transaction needs no lease"
	case p.handler == "silent" && p.kind == "streamed":
		return "a flush sends a status, so the handler is not silent"
	case bodyless && p.kind == "over MaxResponse":
		return "the handler writes no body that is too large"
	case p.kind == "streamed" && p.adapter == "inside":
		return "the layer hands on no flush, so it is held"
	case p.kind != "held" && p.adapter == "past":
		return "the stage does not see what is sent past it, see held"
	}
	return ""
}

// run returns what the client gets, what a repeat gets, how often the handler
// ran, and the log.
func (p proof) run(t *testing.T, steps string) string {
	ring, log := newKeyring(), newLogged()
	token := ring.issue(t)
	store, faulty := idem.Store(&idem.Memory{}), (*idemtest.Faulty)(nil)
	switch p.store {
	case "leases":
		faulty = idemtest.NewFaulty(store)
		store = faulty
	case "joined":
		store = newJoiner()
	}
	if p.end == "lost claim" { // and the store is back when the handler returns
		faulty.Always(idemtest.Extend, idemtest.Fail)
	}
	runner := runnerOf(store, idem.Options{Join: p.store == "joined", Logger: log.hooks().Logger})
	o := keyedOptions{Runner: runner, Timeout: time.Minute}
	if p.kind == "over MaxResponse" {
		o.MaxResponse = 9
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	runs := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs > 1 {
			w.WriteHeader(201)
			fmt.Fprint(w, "again")
			return
		}
		if p.kind == "streamed" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		take(steps, w, func(text string) {
			if text != "" {
				_, _ = fmt.Fprint(w, text)
			}
			if p.kind == "streamed" {
				_ = http.NewResponseController(w).Flush()
			}
			synctest.Wait() // a stream sees that the client has left before
		}, func() {
			switch p.end {
			case "Timeout", "lost claim":
				derived, cancel := context.WithTimeout(r.Context(), time.Hour)
				defer cancel()
				begin := time.Now()
				<-derived.Done()
				if after := time.Since(begin); after > time.Minute || derived.Err() != r.Context().Err() {
					t.Errorf("%v: ended after %v with %v and %v, want one error within Timeout", p, after, derived.Err(),
						r.Context().Err())
				}
			case "client gone":
				leave()
			}
			synctest.Wait() // for the log, and what watches the client
		})
	})
	g := middleware.New(ring.keys, logging(log, o))
	stages := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))
	var h http.Handler
	switch p.adapter {
	case "direct":
		h = stages(g.Idempotent(handler))
	case "outside":
		h = stages(buffer(g.Idempotent(handler)))
	case "inside":
		h = stages(g.Idempotent(buffer(handler)))
	case "past":
		// The adapter hands on the request, and the writer beneath.
		var beneath http.ResponseWriter
		stage := g.Idempotent(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(beneath, r)
		}))
		h = stages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			beneath = w
			stage.ServeHTTP(w, r)
		}))
	}
	ask := func(ctx context.Context) string {
		w, how, asked := httptest.NewRecorder(), "aborted ", make(chan struct{})
		go func() {
			defer close(asked)
			defer func() { _ = recover() }()
			h.ServeHTTP(w, post(token, "a").WithContext(ctx))
			how = ""
		}()
		<-asked
		a := answer{w.Result(), w.Body.String()}
		if n := w.Header().Get("Content-Length"); how == "" && n != "" && n != fmt.Sprint(len(a.body)) {
			how = "aborted " // by net/http
		}
		if a.replayed() {
			how = "replay "
		}
		if how == "aborted " && !w.Flushed && a.body == "" {
			return "aborted"
		}
		if a.body == "" {
			return how + a.Status
		}
		return how + a.outcome(t).String()
	}
	first, lines := ask(ctx), ""
	for line := range strings.Lines(log.String()) {
		lines += "; " + shortLine(line)
	}
	return fmt.Sprintf("%s; %s; ran %d%s", first, ask(t.Context()), runs, lines)
}

var logLine = regexp.MustCompile(`level=(\w+) msg="?([^"\n]*)"?(?:.*? (?:error|reason)="([^"]*)")?`)

// shortLine is a line of the log without what is the same in all.
func shortLine(line string) string {
	m := logLine.FindStringSubmatch(line)
	text := m[2]
	for long, short := range map[string]string{
		"the handler of a keyed request wrote nothing":     "empty 200",
		"the context of a keyed handler ended":             "interrupted",
		"the response to a keyed request is not retained":  "not retained",
		"a handler answered a keyed request with a status": "asks for a retry",
		"panic while serving a request":                    "panic",
		"the response to a keyed request was sent past":    "sent past",
		"a keyed request lost its claim and was cancel":    "claim lost",
	} {
		if strings.HasPrefix(text, long) {
			text = short
		}
	}
	why := strings.NewReplacer("its context ended before the handler, so it may be cut short", "cut",
		"idem: the claim is held by another or is gone: it could not be renewed in time", "claim not renewed",
		"IdempotencyOptions.", "", "it streams, and its transaction had to be committed first; "+
			"without idem.Options.Join it is retained", "transaction").Replace(m[3])
	return m[1] + " " + strings.TrimSuffix(text+" ("+why+")", " ()")
}

// buffer is a layer that holds a response back, hides what is beneath, and sends
// a status and a length that it has computed, also of a handler that is silent.
func buffer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &bodyBuffer{header: http.Header{}}
		next.ServeHTTP(b, r)
		b.WriteHeader(http.StatusOK)
		maps.Copy(w.Header(), b.header)
		if b.status != http.StatusNoContent && b.status != http.StatusNotModified {
			w.Header().Set("Content-Length", strconv.Itoa(b.body.Len()))
		}
		w.WriteHeader(b.status)
		_, _ = w.Write(b.body.Bytes())
	})
}

type bodyBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *bodyBuffer) Header() http.Header { return b.header }

func (b *bodyBuffer) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *bodyBuffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

// inShort joins cells, and names a store alone where it has no others.
func inShort(cells []string, possible map[string]int) string {
	var names []string
	for _, store := range proofStores {
		of := slices.DeleteFunc(slices.Clone(cells), func(cell string) bool { return !strings.HasPrefix(cell, store) })
		if len(of) > 0 && len(of) == possible[store] {
			of = []string{store}
		}
		names = append(names, of...)
	}
	return strings.Join(names, ", ")
}

var (
	proofEnds     = []string{"alive", "Timeout", "lost claim", "client gone"}
	proofKinds    = []string{"held", "streamed", "over MaxResponse"}
	proofStores   = []string{"memory", "leases", "joined"}
	proofAdapters = []string{"direct", "outside", "inside", "past"}
)

// TestProofs: whatever a handler has written when its context ends, neither the
// client nor a repeat gets a success that the handler did not finish. The table
// in testdata/proofs.golden has each cell: handler, end and kind; what the
// client gets; what a repeat gets; how often the handler ran; the log of the
// first request; and the stores and ways to reach the handler where it is so.
func TestProofs(t *testing.T) {
	var got strings.Builder
	var reasons []string
	cells, impossible := 0, map[string]int{}
	for _, handler := range proofHandlers {
		fmt.Fprintf(&got, "=== %s\n", handler.name)
		for _, end := range proofEnds {
			for _, kind := range proofKinds {
				var results []string
				where, possible := map[string][]string{}, map[string]int{}
				for _, store := range proofStores {
					for _, adapter := range proofAdapters {
						p := proof{handler.name, end, kind, store, adapter}
						if reason := p.impossible(); reason != "" {
							if impossible[reason] == 0 {
								reasons = append(reasons, reason)
							}
							impossible[reason]++
							continue
						}
						var result string
						synctest.Test(t, func(t *testing.T) { result = p.run(t, handler.steps) })
						if where[result] == nil {
							results = append(results, result)
						}
						where[result] = append(where[result], store+" "+adapter)
						possible[store]++
						cells++
					}
				}
				for _, result := range results {
					fmt.Fprintf(&got, "%s, %s: %s [%s]\n", end, kind, result, inShort(where[result], possible))
				}
			}
		}
	}
	for _, reason := range reasons {
		fmt.Fprintf(&got, "=== impossible, %d times: %s\n", impossible[reason], reason)
		cells += impossible[reason]
	}
	all := len(proofHandlers) * len(proofEnds) * len(proofKinds) * len(proofStores) * len(proofAdapters)
	if cells != all {
		t.Errorf("the table has %d cells, want %d", cells, all)
	}
	golden(t, "testdata/proofs.golden", got.String())
}
