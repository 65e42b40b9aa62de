package retrytest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"time"
)

const (
	label      = "sallyport_retrytest" // of the goroutines of a request, and of those that they start
	maxRepeats = 8
	quietAfter = time.Second // for goroutines that a handler leaves behind
	// profileFrom is the pause of quiet from which on it asks whose the goroutines are.
	profileFrom = 8 * time.Millisecond
)

// reply is a response as its client got it.
type reply struct {
	status  int
	header  http.Header
	body    string
	arrived bool
}

func (a reply) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// isFinal reports whether a client sends the request no more.
func (a reply) isFinal() bool {
	replayed := a.header.Get("Idempotent-Replayed") != ""
	return a.arrived && (replayed || a.status < 400 || a.status < 500 && a.header.Get("Retry-After") == "")
}

// send sends the request of the run, and waits until the process has nothing to
// do for it any more.
func (p *Process) send() reply {
	r := p.run
	ctx, cancel := context.WithCancel(context.Background())
	r.mu.Lock()
	p.request++
	p.savepoints = nil
	p.serving, p.returned, p.leave = true, false, cancel
	id := fmt.Sprintf("%s-%p-%d", r.key, p, p.request)
	cut := p.fault == cutResponse && !r.fired
	if cut {
		r.fired = true
	}
	r.mu.Unlock()
	q := httptest.NewRequest(r.create.method(), r.create.Path, strings.NewReader(r.create.Body))
	maps.Copy(q.Header, r.create.Header.Clone())
	q.Header.Set("Idempotency-Key", r.key)
	w := &writer{httptest.NewRecorder(), math.MaxInt, cancel}
	if cut {
		w.room = r.limit
	}
	arrived, ended := false, make(chan struct{})
	go pprof.Do(ctx, pprof.Labels(label, id), func(ctx context.Context) {
		defer close(ended)
		defer func() { recover() }() // as net/http does
		p.handler.ServeHTTP(w, q.WithContext(ctx))
		arrived = !cut
	})
	select {
	case <-ended:
		cancel()
	case <-p.died.Done():
	}
	r.mu.Lock()
	p.returned = true
	r.mu.Unlock()
	p.hangs = !p.quiet(id) || p.hangs
	r.mu.Lock()
	p.serving = false
	r.mu.Unlock()
	if p.died.given() {
		return reply{}
	}
	return reply{w.Code, w.Result().Header, w.Body.String(), arrived}
}

// writer is the server's end of a connection, of which the client may get only
// the first bytes.
type writer struct {
	*httptest.ResponseRecorder
	room  int // for bytes that arrive
	leave func()
}

// WriteHeader passes over interim responses, such as 103, which the recorder
// takes for the answer.
func (w *writer) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	if len(b) < w.room {
		w.room -= len(b)
		return w.ResponseRecorder.Write(b)
	}
	n, _ := w.ResponseRecorder.Write(b[:w.room])
	w.room = 0
	w.leave()
	return n, errBroken
}

func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// quiet waits until no step is in progress, and until the goroutines of the
// host's that a request has left behind have ended, or have crashed.
func (p *Process) quiet(id string) bool {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		begun := p.begun.Load()
		busy, limit := p.doing.Load() > 0, patience
		if !busy && !p.hangs {
			limit = quietAfter
			// What another request runs ends meanwhile. A step begun since is over, its goroutine may not be.
			busy = mayBeBusy() && (pause < profileFrom || leftBehind(id)) || p.begun.Load() != begun
		}
		if !busy || time.Since(began) > limit {
			return !busy
		}
		time.Sleep(pause)
	}
}
