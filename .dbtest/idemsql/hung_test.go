package idemsql_test

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
)

// promised is within what time a joined request with the defaults is answered
// although Postgres hangs.
const promised = 3 * time.Second

// stop stops all processes of a server, so that it takes requests in and answers
// none, and returns what lets them go on.
func stop(t *testing.T, own *pgtest.Server) (goOn func()) {
	t.Helper()
	file, err := os.ReadFile(own.Data() + "/postmaster.pid")
	if err != nil {
		t.Fatal(err)
	}
	parent, _, _ := strings.Cut(string(file), "\n")
	signal := func(process string, s syscall.Signal) {
		if pid, err := strconv.Atoi(process); err == nil && pid > 1 {
			syscall.Kill(pid, s)
		}
	}
	signal(parent, syscall.SIGSTOP) // first: it has no more children then
	children, _ := exec.Command("pgrep", "-P", parent).Output()
	processes := append(strings.Fields(string(children)), parent)
	for _, p := range processes {
		signal(p, syscall.SIGSTOP)
	}
	goOn = sync.OnceFunc(func() {
		for _, p := range processes {
			signal(p, syscall.SIGCONT)
		}
	})
	t.Cleanup(goOn)
	return goOn
}

// lateness measures by how much a timer has come late until it is asked. A busy
// machine adds that to every promise, once for each of the three timers that a
// request meets in turn: for its turn, for the database, for the way back.
func lateness(t *testing.T) func() time.Duration {
	const tick = 10 * time.Millisecond
	var most atomic.Int64
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		for {
			begun := time.Now()
			select {
			case <-ended:
				return
			case <-time.After(tick):
			}
			most.Store(max(most.Load(), int64(time.Since(begun)-tick)))
		}
	}()
	return func() time.Duration { return 3 * time.Duration(most.Load()) }
}

// Postgres hangs: each joined request is answered in time, those that wait for
// a turn too, whether the turns are held by handlers or by other Joins. What is
// rolled back is answered soon after its handler has returned, and a COMMIT
// without an answer is unknown. A statement of a handler lasts as long as the
// handler's context.
func TestPostgresHangs(t *testing.T) {
	own := pgtest.NewServer(t)
	own.Start()
	late := lateness(t)
	var tests []*hung
	for _, h := range []*hung{
		{name: "sql, free turns", size: 10},
		{name: "sql, a small pool", size: 4},
		{name: "sql, one connection", size: 1},
		{name: "sql, handlers have the turns", size: 10, held: 5},
		{name: "sql, one more turn", size: 10, held: 4},
		{name: "pgx, free turns", pgx: true, size: 10},
		{name: "pgx, a small pool", pgx: true, size: 4},
		{name: "pgx, one connection", pgx: true, size: 1},
		{name: "pgx, handlers have the turns", pgx: true, size: 10, held: 5},
		{name: "pgx, one more turn", pgx: true, size: 10, held: 4},
	} {
		h.start(t, own)
		tests = append(tests, h)
	}
	for _, h := range tests {
		h.hold(t, late)
	}
	goOn := stop(t, own)
	defer goOn()
	var all sync.WaitGroup
	for _, h := range tests { // at once, because all of it is waiting
		all.Go(func() { h.during(t, late) })
	}
	all.Wait()
	goOn()
	for _, h := range tests {
		deadline := time.Now().Add(patience)
		for a := (answer{}); a.status != 201; a = h.server.post("afterwards", "title") {
			if time.Now().After(deadline) {
				t.Fatalf("%s: when the server goes on: got %d %s", h.name, a.status, a.body)
			}
		}
		mustBeIdle(t, h.server.db)
	}
}

// hung is a server with a pool of its own in a Postgres that hangs.
type hung struct {
	name string
	pgx  bool
	size int // of the pool
	held int // turns that handlers hold

	server   *server
	release  chan struct{}  // closed when handlers may return
	returned []time.Time    // when handlers did
	handlers sync.WaitGroup // that have not begun
	requests sync.WaitGroup
}

// statuses are what handlers that hold turns answer.
var statuses = []int{500, 201, 422}

// start starts the server.
func (h *hung) start(t *testing.T, own *pgtest.Server) {
	d := inPostgres(own.Schema()).migrated(t).of(h.size)
	if h.pgx {
		d = d.native()
	}
	const statement = 4 * time.Second // of the handler's context, longer than the timeout
	defaults := options{Options: idem.Options{Join: true, Lease: 15 * time.Second, Wait: 10 * time.Second,
		Timeout: 2 * time.Second}, handler: statement}
	h.release, h.returned = make(chan struct{}), make([]time.Time, h.held)
	h.handlers.Add(h.held)
	h.server = newServer(t, d, defaults, func(w http.ResponseWriter, r *http.Request, s *server) {
		number, err := strconv.Atoi(r.Header.Get("Idempotency-Key"))
		if err != nil {
			create(w, r, s)
			return
		}
		if _, err := countIn(r.Context(), "SELECT 1"); err != nil {
			t.Errorf("%s: before the server hangs: %v", h.name, err)
		}
		h.handlers.Done()
		<-h.release
		begun := time.Now()
		if deadline, _ := r.Context().Deadline(); number == 0 {
			_, err = countIn(r.Context(), "SELECT 1")
			if err == nil || time.Until(deadline) > 0 {
				t.Errorf("%s: the handler's statement ended after %v with %v, want its context's end",
					h.name, time.Since(begun), err)
			}
		}
		h.returned[number] = time.Now()
		w.WriteHeader(statuses[number%3])
	})
	h.server.post("warm up", "title").mustBe(t, 201, "")
}

// hold sends the requests whose handlers hold turns.
func (h *hung) hold(t *testing.T, late func() time.Duration) {
	for i := range h.held {
		h.requests.Go(func() {
			a, status := h.server.post(strconv.Itoa(i), "title"), statuses[i%3]
			if took := time.Since(h.returned[i]); took > promised+late() {
				t.Errorf("%s: a handler that answered %d: its answer took %v", h.name, status, took)
			}
			// Which of the two depends on how far it came.
			if i%3 > 0 && (a.status != 503 || a.code() != notSaved && a.code() != "idempotency_commit_unknown") {
				t.Errorf("%s: a handler that answered %d: got %d %s", h.name, status, a.status, a.body)
			}
		})
	}
	h.handlers.Wait()
}

const notSaved = "idempotency_store_unavailable"

// during asks while Postgres hangs.
func (h *hung) during(t *testing.T, late func() time.Duration) {
	var longest atomic.Int64
	for wave := range 12 { // the first at one moment, then one by one
		for i := range 40 {
			if i > 1 && wave > 0 {
				break
			}
			h.requests.Go(func() {
				begun := time.Now()
				a := h.server.post("of wave "+strconv.Itoa(wave)+" "+strconv.Itoa(i), "title")
				if took := int64(time.Since(begun)); took > longest.Load() {
					longest.Store(took)
				}
				if a.status != 503 || a.code() != notSaved {
					t.Errorf("%s: got %d %s", h.name, a.status, a.body)
				}
			})
		}
		<-time.After(200 * time.Millisecond)
	}
	close(h.release)
	h.requests.Wait()
	if got := time.Duration(longest.Load()); got > promised+late() {
		t.Errorf("%s: a request was held for %v, want at most %v and %v by which the machine was late",
			h.name, got, promised, late())
	}
}
