package retrytest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Suite is a server and what its clients create.
type Suite struct {
	// Server makes a process of the server: its handler as it is served, on the
	// databases that p opens and with the idempotency that p is given. It is
	// called for each run, and twice where a repeat goes to another process.
	// All of them share the data. It starts no work in the background, such as
	// idemsql's Store.Run, and has no rate limit that a hundred requests reach.
	Server func(p *Process) http.Handler
	// Creates are tried one after the other.
	Creates []Create
	// Effects counts what there is, by name: the rows of a table, the charges
	// at a payment service's fake. They must not go through a Process. What a
	// create adds when nothing fails is what it must add.
	Effects map[string]func(context.Context) (int, error)
}

// Create is a request that must have its effect once.
type Create struct {
	Method string // POST by default
	Path   string
	Header http.Header // with the credentials; an Idempotency-Key is added
	// Body is sent with each request. In Path and Body {{random}} is text that
	// no other run has; a repeat sends the same.
	Body string
}

func (c Create) method() string { return cmp.Or(c.Method, http.MethodPost) }
func (c Create) name() string   { return c.method() + " " + c.Path }

// Run tries each create as often as it has steps and faults, and fails the test
// for what is not right.
func (s Suite) Run(t testing.TB) {
	t.Helper()
	if s.Server == nil || len(s.Creates) == 0 || len(s.Effects) == 0 {
		t.Fatal("retrytest: a Suite needs Server, Creates and Effects")
	}
	for _, c := range s.Creates {
		s.try(t, c)
	}
}

func (s *Suite) try(t testing.TB, c Create) {
	t.Helper()
	s.execute(t, c, none, place{}, whole, nil, 0) // fills the caches that processes share
	learned := s.execute(t, c, none, place{}, whole, nil, 0)
	result := report{create: c, learned: learned, counts: map[verdict]int{}}
	if learned.verdict != once {
		result.add(learned)
		t.Errorf("%s without a fault: %s%s", c.name(), learned.final, result.failures())
		return
	}
	steps := slices.DeleteFunc(slices.Clone(learned.steps), func(s *step) bool { return s.request != 1 || s.wraps })
	for _, step := range steps {
		for _, f := range step.faults(learned.first.joins.Load()) {
			s.under(t, &result, f, step.place, whole)
		}
	}
	half := len(learned.final.body) / 2
	for _, limit := range slices.Compact([]int{0, min(1, half), half}) {
		s.under(t, &result, cut, place{text: fmt.Sprintf("after %d bytes", limit)}, limit)
	}
	t.Logf("%s  %d steps  %s", c.name(), len(steps), &result)
	if text := result.failures(); text != "" {
		t.Errorf("%s is not safe to retry:%s", c.name(), text)
	}
}

// faults are those that are tried at a step.
func (s *step) faults(joins bool) []fault {
	all := []fault{before, after, crashBefore, crashAfter, gone}
	if s.site == "" {
		return all // what the middleware does then has tests of its own
	}
	all = append(all, two)
	if !s.service {
		all = append(all, refused)
	}
	if !s.late {
		all = append(all, expired)
	}
	if !joins {
		all = append(all, lost)
	}
	return all
}

func (s *Suite) under(t testing.TB, result *report, f fault, at place, limit int) {
	t.Helper()
	var r *run
	for tries := range 5 { // on a slow machine the deadline may pass before the step
		if r = s.execute(t, result.create, f, at, limit, result.learned, tries); r.fired {
			result.add(r)
			return
		}
	}
	t.Errorf("%s: a fault never took effect: %s", result.create.name(), r.cut())
}

// run is a create under one fault, until its client has an answer.
type run struct {
	create  Create
	fault   fault
	at      place
	key     string
	final   reply
	verdict verdict
	added   map[string]int // to the effects
	wrong   string         // with them

	first, second *Process
	// Done when the second has asked for a claim, when it has its answer, and
	// when the first knows that its own claim is lost.
	asks, over, told context.Context
	ask, end, tell   context.CancelFunc
	beside           chan reply // of the second, where it runs beside the first
	leave            context.CancelFunc
	tries            int  // how often it was tried before
	hung             bool // the handler leaves goroutines behind that do not end

	mu    sync.Mutex
	steps []*step
	fired bool
	freed bool // the key was
}

type verdict string

const (
	once    verdict = "once"
	twice   verdict = "twice"
	missing verdict = "lost"
	unknown verdict = "unknown" // the client is told so, or that it failed
)

// maxTries is how often a client repeats.
const maxTries = 8

// whole is the limit of a response that arrives.
const whole = -1

func (s *Suite) count(t testing.TB) map[string]int {
	t.Helper()
	all := map[string]int{}
	for name, count := range s.Effects {
		n, err := count(t.Context())
		if err != nil {
			t.Fatalf("retrytest: the effects %q were not counted: %v", name, err)
		}
		all[name] = n
	}
	return all
}

// execute sends a create under a fault, repeats it as a client would, and counts
// the effects. Those of learned are right.
func (s *Suite) execute(t testing.TB, c Create, f fault, at place, limit int, learned *run, tries int) *run {
	t.Helper()
	random := strings.NewReplacer("{{random}}", strings.ToLower(rand.Text()))
	c.Path, c.Body = random.Replace(c.Path), random.Replace(c.Body)
	r := &run{create: c, fault: f, at: at, key: rand.Text(), tries: tries}
	if learned != nil {
		r.hung = learned.first.hung
	}
	r.asks, r.ask = context.WithCancel(context.Background())
	r.over, r.end = context.WithCancel(context.Background())
	r.told, r.tell = context.WithCancel(context.Background())
	had := s.count(t)
	r.first = s.process(t, r, 1)
	defer func() { r.first.end() }()
	if f == two || f == lost {
		r.second = s.process(t, r, 2)
	}
	r.final = r.first.send(limit)
	if r.first.died.Err() != nil || f == expired { // where the deadline is short for repeats too
		r.first.end()
		r.second = s.process(t, r, 2)
	}
	p := r.first
	if r.second != nil {
		p = r.second
		defer p.end()
	}
	if r.beside != nil {
		r.final = <-r.beside
	}
	for repeats := 0; learned != nil && !r.final.isFinal() && repeats < maxTries; repeats++ {
		wait(nil, time.Duration(repeats)*time.Millisecond)
		r.final = p.send(whole)
	}
	r.judge(had, s.count(t), learned)
	return r
}

func (s *Suite) process(t testing.TB, r *run, number int) *Process {
	t.Helper()
	p := &Process{t: t, run: r, number: number, hung: r.hung}
	p.died, p.die = context.WithCancel(context.Background())
	if p.handler = s.Server(p); !p.keyed {
		t.Fatal("retrytest: Server must give its IdempotencyOptions through Process.Idempotency")
	}
	return p
}

// longer is a time that is longer with each try.
func (r *run) longer(d time.Duration) time.Duration { return d << (2 * r.tries) }

// asked notes that a process asks for a claim.
func (r *run) asked(p *Process) {
	if p.number == 2 {
		r.ask()
	}
}

// meanwhile lets a second process have a repeat while the first is at a step.
// The first goes on when the second asks for the claim, or where it loses its
// own, when it knows.
func (r *run) meanwhile(ctx context.Context) {
	if r.beside != nil {
		return // database/sql runs a statement again, in another way, after driver.ErrSkip
	}
	r.beside = make(chan reply, 1)
	go func() {
		r.beside <- r.second.send(whole)
		r.ask()
		r.end()
	}()
	if r.fault == two {
		<-r.asks.Done()
		return
	}
	<-r.over.Done()
	r.mu.Lock()
	took := slices.ContainsFunc(r.steps, func(s *step) bool { return s.process == 2 && s.site != "" })
	r.mu.Unlock()
	if took && r.first.claimed.Load() {
		wait(r.told.Done(), 10*patience)
		if ctx.Done() != nil { // else it never learns of it
			wait(ctx.Done(), patience)
		}
	}
}

// judge compares the effects with those of a create without a fault.
func (r *run) judge(had, have map[string]int, learned *run) {
	r.verdict = once
	r.added = maps.Clone(have)
	most, changed := 0, false
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		n := have[name] - had[name]
		r.added[name] = n
		changed = changed || n > 0
		if learned == nil {
			continue
		}
		if want := learned.added[name]; n != want {
			wrong = append(wrong, fmt.Sprintf("%d %s in place of %d", n, name, want))
			most = max(most, n-want)
		}
	}
	r.wrong = strings.Join(wrong, ", ")
	switch ok := r.final.status < 400; {
	case most > 0:
		r.verdict = twice
	case !r.final.isFinal():
		r.verdict, r.wrong = missing, "the client never gets an answer that is final, but "+r.final.String()
	case !ok && changed && learned != nil && r.denied(wrong != nil):
		r.verdict, wrong = missing, append(wrong, "the client is told "+r.final.String())
		r.wrong = strings.Join(wrong, ", and ")
	case !ok:
		r.verdict = unknown
	case wrong != nil || learned == nil && !changed:
		r.verdict = missing
	}
}

// denied reports whether the client of a joined create that has left effects is
// not told of them: of a part, or of all by a refusal of the handler's own.
func (r *run) denied(part bool) bool {
	return r.first.joins.Load() && (part || !strings.Contains(r.final.body, `"idempotency_`))
}

// reply is a response as its client got it.
type reply struct {
	status int
	header http.Header
	body   string
	whole  bool
}

func (a reply) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// isFinal reports whether a client is to send the request again.
func (a reply) isFinal() bool {
	replayed := a.header.Get("Idempotent-Replayed") != ""
	return a.whole && (replayed || a.status < 400 || a.status < 500 && a.header.Get("Retry-After") == "")
}

// send sends the request of the run, and waits until the process has nothing to
// do for it any more.
func (p *Process) send(limit int) reply {
	r := p.run
	ctx, cancel := context.WithCancel(context.Background())
	r.mu.Lock()
	p.request++
	p.serving, p.returned = true, false
	id := fmt.Sprintf("%s-%d-%d", r.key, p.number, p.request)
	if p.number == 1 {
		r.leave = cancel
	}
	r.mu.Unlock()
	q := httptest.NewRequest(r.create.method(), r.create.Path, strings.NewReader(r.create.Body))
	maps.Copy(q.Header, r.create.Header.Clone())
	q.Header.Set("Idempotency-Key", r.key)
	w := &writer{httptest.NewRecorder(), limit, cancel}
	arrived, ended := false, make(chan struct{})
	go pprof.Do(ctx, pprof.Labels(label, id), func(ctx context.Context) {
		defer close(ended)
		defer func() { recover() }() // as net/http does
		p.handler.ServeHTTP(w, q.WithContext(ctx))
		arrived = limit == whole
	})
	select {
	case <-ended:
		cancel()
	case <-p.died.Done():
	}
	r.mu.Lock()
	p.returned = true
	r.mu.Unlock()
	p.hung = !p.quiet(id) || p.hung
	r.mu.Lock()
	p.serving = false
	if limit != whole { // not of a second process, which may end after the run
		r.fired = true
	}
	r.mu.Unlock()
	if p.died.Err() != nil {
		return reply{}
	}
	return reply{w.Code, w.Result().Header, w.Body.String(), arrived}
}

// writer is the server's end of a connection, of which the client may get only
// the first bytes.
type writer struct {
	*httptest.ResponseRecorder
	left int // of the bytes that arrive; below 0, all do
	gone func()
}

func (w *writer) Write(b []byte) (int, error) {
	if w.left < 0 || len(b) < w.left {
		w.left -= len(b)
		return w.ResponseRecorder.Write(b)
	}
	n, _ := w.ResponseRecorder.Write(b[:w.left])
	w.left = 0
	w.gone()
	return n, errBroken
}

func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
