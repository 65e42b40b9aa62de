package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// world is servers that share a store, and requests with one key. What goes on
// is cut into steps, each call of the store and each handler. A step waits until
// it is chosen, and time stands still until it is chosen that some passes.
type world struct {
	store        *counted
	idem.Counter                 // of what servers charge
	choose       func(n int) int // one of n
	faults       int             // how many more there may be
	// reexecute runs unknown outcomes again. Handlers then do nothing when their
	// context is done.
	reexecute bool
	joined    bool // Effects are those of transactions, which are rolled back with their server.
	// serve is what a server does with a request: what the client gets, and if
	// that is not final, when it sends the request again.
	serve func(*server, [32]byte) (text string, again time.Duration)

	mu      sync.Mutex
	servers []*server
	queues  [][]sent // each in its order
	steps   []*step
	after   *server // of the last action, if it was local
	inVain  bool    // time passed, and brought nothing
	calm    bool    // all calls get through at once
	stalls  bool    // those do that renew or claim
	lapses  bool    // those do, but for those of the server that holds the key, which fail
	away    bool    // all fail

	answers              map[string][32]byte // that handlers gave to which request
	ran                  map[[32]byte]bool   // requests whose handler began
	mismatched           [][32]byte          // answered since the last check
	effects, taken, gone int                 // of handlers; claims that were taken over; erased records
	lost                 bool                // an outcome, by a crash or a panic
	trace                []string
	wrong                bool
}

// server is a process, and the Store of its Runner.
type server struct {
	*world
	name     string
	runner   *idem.Runner
	api      func() http.Handler      // of the runner
	claims   map[idem.ClaimToken]int  // numbered
	told     map[idem.ClaimToken]bool // that they are lost
	inFlight int                      // requests
	knows    bool                     // the answer, of an execution of its own
	dead     bool
}

type sent struct {
	to          int // any server if it is negative
	fingerprint [32]byte
	from        time.Time
}

type step struct {
	server *server
	what   string
	claim  int
	ctx    context.Context // when it is done, nobody waits for the answer
	arrive time.Time
	chosen chan verdict
}

// verdict is what becomes of a step.
type verdict uint8

const (
	passes  verdict = iota
	loses           // its answer: its caller gets an error; a handler panics after its effect
	refused         // it has no effect, and its caller gets an error; a handler does nothing
	dies            // with its server
)

// After a tick each try that was to be repeated is a step again, whatever the
// jitter: it is longer than all pauses. No call runs out of time in a tick or
// while a handler is slow, and each does in a stall, which a lease outlasts.
const (
	lease   = 240 * time.Second
	timeout = 100 * time.Second
	tick    = 7300 * time.Millisecond
	slow    = lease/3 + time.Second
	stall   = timeout + 2*tick
)

var errNetwork = errors.New("the network failed")

func newWorld(choose func(n int) int, faults int, queues ...[]sent) *world {
	store := counteds.Get().(*counted)
	return &world{store: store, Counter: &store.memory, choose: choose, faults: faults, queues: slices.Clone(queues),
		answers: make(map[string][32]byte), ran: make(map[[32]byte]bool)}
}

func (w *world) start(name string) *server {
	s := &server{world: w, name: name, claims: make(map[idem.ClaimToken]int), told: make(map[idem.ClaimToken]bool)}
	s.runner = newRunner(s, idem.Options{Lease: lease, Timeout: timeout, Wait: time.Second, Reexecute: w.reexecute,
		Join: w.joined})
	s.api = sync.OnceValue(func() http.Handler { return newAPI(s) })
	return s
}

// wait returns when the step is chosen.
func (s *server) wait(ctx context.Context, what string, token idem.ClaimToken) verdict {
	s.mu.Lock()
	if s.claims[token] == 0 {
		s.claims[token] = len(s.claims) + 1
	}
	p := &step{server: s, what: what, claim: s.claims[token], ctx: ctx, arrive: time.Now(), chosen: make(chan verdict, 1)}
	switch call := what != "handler"; {
	case s.dead:
		p.chosen <- dies
	case call && (s.away || s.lapses && s.holds()):
		p.chosen <- refused
	case s.calm, call && s.lapses, s.stalls && (what == "begin" || what == "extend"):
		p.chosen <- passes
	default:
		s.steps = append(s.steps, p)
	}
	s.mu.Unlock()
	return <-p.chosen
}

func (s *server) call(ctx context.Context, what string, token idem.ClaimToken, do func() error) error {
	v := s.wait(ctx, what, token)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v {
	case dies:
		return idem.ErrLost
	case refused:
		return errNetwork
	}
	err := do()
	if v == loses {
		return errNetwork
	}
	return err
}

func (s *server) Begin(ctx context.Context, c idem.Claim) (r idem.Record, err error) {
	if c.Tenant == "probe" { // of an outage, and no request's
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.away || s.dead {
			err = errNetwork
		}
		return r, err
	}
	err = s.call(ctx, "begin", c.Token, func() (err error) {
		if r, err = s.store.Begin(ctx, c); r.Attempt > 1 && s.reexecute {
			s.taken++
		}
		return err
	})
	return r, err
}

func (s *server) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	err := s.call(ctx, "extend", token, func() error { return s.store.Extend(ctx, key, token, lease) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[token] = s.told[token] || err == idem.ErrLost && ctx.Err() == nil
	return err
}

func (s *server) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, o idem.Settlement) error {
	s.mu.Lock()
	probe := s.claims[token] == 0
	s.mu.Unlock()
	if probe {
		return nil
	}
	what := [...]string{idem.OutcomeDone: "save", idem.OutcomeUnknown: "save unknown", idem.OutcomeFree: "free"}[o.Outcome]
	return s.call(ctx, what, token, func() error { return s.store.Settle(ctx, key, token, o) })
}

// record returns the record of the key, or an empty one.
func (w *world) record() *sharedRecord {
	for _, r := range w.store.records {
		return r
	}
	return &sharedRecord{settled: &idem.Settlement{}}
}

func (w *world) stored(text string) bool {
	r := w.record()
	return r.settled != nil && strings.Contains(string(r.settled.Payload), text)
}

// holds reports whether a claim of the server holds the key.
func (s *server) holds() bool {
	r := s.record()
	return r.settled == nil && s.claims[r.claim.Token] > 0
}

// handle is a handler: its answer, if it has one.
func (s *server) handle(ctx context.Context, f [32]byte, attempt int) (string, verdict) {
	s.mu.Lock()
	if s.ran[f] = true; attempt == 1 && s.effects > 0 && s.gone == 0 {
		s.failf("a handler that does not know of the effect of an earlier attempt")
	}
	token := s.record().claim.Token
	s.mu.Unlock()
	v := s.wait(context.Background(), "handler", idem.ClaimToken{})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v == dies || v == refused:
		return "nothing", v
	case s.reexecute && ctx.Err() != nil:
		return "nothing", loses
	case s.reexecute && (s.told[token] || s.gone == 0 && !(s.holds() && time.Now().Before(s.record().lapses))):
		s.failf("a handler has an effect that should know that its claim is lost")
	}
	if !s.joined {
		s.effects++
	}
	if v == loses {
		return "nothing", v
	}
	text := fmt.Sprint("answer ", len(s.answers)+1)
	s.answers[text] = f
	return text, v
}

func (w *world) failf(format string, args ...any) {
	w.wrong = true
	w.trace = append(w.trace, "WRONG: "+fmt.Sprintf(format, args...))
}

// send sends a request. Its client does not hear of what a dead server does.
func (w *world) send(s *server, f [32]byte) {
	s.inFlight++
	go func() {
		text, again := w.serve(s, f)
		w.mu.Lock()
		defer w.mu.Unlock()
		s.inFlight--
		if !s.dead {
			w.got(s, f, text)
		}
		if again > 0 {
			w.queues = append(w.queues, []sent{{-1, f, time.Now().Add(again)}})
		}
	}()
}

// got checks what a client got.
func (w *world) got(s *server, f [32]byte, text string) {
	w.trace = append(w.trace, "  "+s.name+" answers "+text)
	fine := w.answers[text] == f && (w.stored(text) || s.runner.Stats().Unsaved > 0)
	switch text {
	case "nothing", "error":
		fine = true
	case "in progress":
		fine = !s.knows || w.taken+w.gone > 0
	case "unknown": // not where it is known that nothing ran
		fine = !w.joined && (len(w.ran) > 0 || w.lost || !s.holds())
	case "mismatch":
		fine, w.mismatched = true, append(w.mismatched, f)
	}
	if !fine {
		w.failf("that is not the first answer, or not saved")
	}
}

// check checks what holds whenever nothing moves.
func (w *world) check() {
	for _, f := range w.mismatched { // The handler of the other may begin after the answer.
		if !w.lost && len(w.ran) < 2 && (len(w.ran) == 0 || w.ran[f]) {
			w.failf("a mismatch, and no other request ran")
		}
	}
	w.mismatched = nil
	if w.store.check(); w.store.differs != "" {
		w.failf("%s of the Memory is not that of the model", w.store.differs)
	}
	if w.effects > 1+w.taken+w.gone {
		w.failf("%d effects", w.effects)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range w.servers {
		open := slices.ContainsFunc(w.steps, func(p *step) bool { // it may claim, or end a claim
			return p.server == s && p.what != "extend" && (p.ctx.Err() == nil || p.what == "begin")
		})
		held := s.holds() && !(w.joined && s.late()) // a transaction that nobody waits for
		if s.runner.WaitSettled(over) == nil && (open || held) {
			w.failf("WaitSettled does not wait")
		}
	}
}

// action is what may happen next.
type action struct {
	name  string
	on    *server // nil: on all
	local bool    // it changes nothing that another server may see
	do    func()
}

// nobody is a server on which no local action is.
var nobody = new(server)

func (w *world) let(v verdict, some ...*step) {
	w.steps = slices.DeleteFunc(w.steps, func(p *step) bool { return slices.Contains(some, p) })
	for _, p := range some {
		p.chosen <- v
	}
}

// actions returns what may happen next: each step, the next requests, faults,
// and that time passes when no step is left.
//
// After a local action that is only what depends on it: others may as well do
// theirs before. Of local actions in a row the one on the first server is first.
func (w *world) actions() (all []action) {
	add := func(faults int, local bool, on *server, name string, do func()) {
		next := w.after == nil || on == nil || on == w.after || local && on.name > w.after.name
		if next && faults <= w.faults {
			all = append(all, action{name, on, local, func() { w.faults -= faults; do() }})
		}
	}
	var calls []*step // that are waited for
	handlers, busy, due := 0, 0, 0
	for _, p := range w.sorted() {
		name := p.server.name + " " + p.what
		switch {
		case p.what == "handler":
			handlers++
			add(0, true, p.server, name, func() { w.let(passes, p) })
			add(1, true, p.server, name+" does nothing", func() { w.let(refused, p) })
			add(1, true, p.server, name+" panics", func() { w.lost = true; w.let(loses, p) })
		case p.ctx.Err() == nil:
			calls = append(calls, p)
			add(0, false, p.server, name, func() { w.let(passes, p) })
			add(1, false, p.server, name+" loses its answer", func() { w.let(loses, p) })
			add(1, true, p.server, name+" fails", func() { w.let(refused, p) })
		case !w.away:
			add(0, false, nobody, name+" comes late", func() { w.let(passes, p) })
		}
	}
	for i, s := range w.servers {
		for j, queue := range w.queues {
			if next := queue[0]; !time.Now().Before(next.from) && (next.to < 0 || next.to == i) {
				due++
				add(0, true, s, "request to "+s.name, func() { w.queues[j] = queue[1:]; w.send(s, next.fingerprint) })
			}
		}
		unsaved := s.runner.Stats().Unsaved
		if s.inFlight > 0 || unsaved > 0 && !w.inVain {
			busy++
		}
		if s.inFlight+unsaved > 0 {
			add(1, false, s, "crash of "+s.name, func() {
				s.dead, w.lost = true, true
				w.servers[i] = w.start(s.name + "'")
				if w.joined && !s.late() {
					s.rollBack()
				}
				w.let(dies, slices.DeleteFunc(w.sorted(), func(p *step) bool { return p.server != s || p.ctx.Err() != nil })...)
			})
		}
	}
	if w.away {
		add(0, false, nil, "the store is back", func() {
			w.pass(tick)
			w.away = false
			if slices.ContainsFunc(w.servers, func(s *server) bool { return s.runner.Stats().Down }) {
				w.pass(tick) // until each has seen it
			}
		})
		return all
	}
	add(1, false, nil, "the store is away", func() { w.away = true; w.let(refused, calls...) })
	if len(w.store.records) > 0 && (!w.joined || w.record().settled != nil) {
		add(1, false, nobody, "erase", func() { w.gone++; w.store.erase() })
	}
	if r := w.record(); !w.joined && r.settled == nil && len(calls) == 0 && time.Now().Before(r.lapses) {
		add(1, false, nil, "the lease ends", func() { w.lapses = true; w.pass(lease + tick); w.lapses = false })
	}
	switch {
	case len(calls) > 0:
		add(len(calls), false, nil, "no call returns", func() { w.stalls = true; w.pass(stall); w.stalls = false })
	case handlers > 0:
		add(1, false, nil, "the handler is slow", func() { w.pass(slow) })
	case busy > 0 || len(w.queues) > 0 && due == 0:
		add(0, false, nil, "time passes", func() { n := len(w.steps); w.pass(tick); w.inVain = len(w.steps) == n })
	case len(w.queues) == 0:
		add(0, false, nil, "end", func() {})
	}
	return all
}

// sorted returns the steps in an order that is the same each time.
func (w *world) sorted() []*step {
	return slices.SortedFunc(slices.Values(w.steps), func(a, b *step) int {
		return cmp.Or(strings.Compare(a.server.name, b.server.name), strings.Compare(a.what, b.what), a.claim-b.claim,
			a.arrive.Compare(b.arrive))
	})
}

// pass lets time pass, and waits until nothing moves.
func (w *world) pass(d time.Duration) {
	w.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
}

// run lets things happen until the end. Then all calls get through, and more
// requests must get the answer.
func (w *world) run(t *testing.T, servers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range servers {
		w.servers = append(w.servers, w.start(name))
	}
	for a := (action{}); a.name != "end" && !w.wrong; w.check() {
		all := w.actions()
		a = all[w.choose(len(all))]
		w.trace = append(w.trace, a.name)
		n := len(w.trace)
		a.do()
		w.pass(0)
		// Of what happens at one moment, the order is not known.
		slices.Sort(w.trace[n:])
		w.queues = slices.DeleteFunc(w.queues, func(q []sent) bool { return len(q) == 0 })
		slices.SortStableFunc(w.queues, func(a, b []sent) int { return a[0].from.Compare(b[0].from) })
		w.after = nil
		if a.local && slices.ContainsFunc(w.steps, func(p *step) bool { return p.server == a.on && p.ctx.Err() == nil }) {
			w.after = a.on
		}
		if len(w.trace) > 1000 {
			w.failf("no end")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	settled := make(chan error, len(w.servers))
	for _, s := range w.servers {
		go func() { settled <- s.runner.WaitSettled(ctx) }()
	}
	w.calm = true
	for _, p := range w.sorted() {
		w.let(passes, p)
		w.pass(0)
	}
	w.pass(3 * lease)
	for _, s := range w.servers {
		if n := s.runner.Stats(); len(settled) < len(w.servers) || n.Executions+n.Unsaved+n.Waiters > 0 {
			w.failf("%s does not come to rest: %+v", s.name, n)
		}
	}
	last := ""
	for _, s := range slices.Concat(w.servers, w.servers) {
		w.mu.Unlock()
		text, _ := w.serve(s, [32]byte{1})
		w.mu.Lock()
		w.got(s, [32]byte{1}, text)
		_, answered := w.answers[text]
		if text != cmp.Or(last, text) || !answered && text != "mismatch" && !(w.lost && text == "unknown") {
			w.failf("the last requests do not get the answer")
		}
		last = text
	}
	if w.checkUnits(last); w.wrong {
		t.Error(strings.Join(w.trace, "\n\t"))
	}
}
