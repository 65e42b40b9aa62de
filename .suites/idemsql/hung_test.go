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

	"github.com/sallyport-go/sallyport/.ci/pgtest"
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

// lateness measures by how much a timer has come late until it is asked, which a
// busy machine adds to every promise.
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
	return func() time.Duration { return time.Duration(most.Load()) }
}

// Postgres hangs: each joined request is answered in time, those that wait for
// a turn too, whether the turns are held by handlers or by other Joins. What is
// rolled back is answered soon after its handler has returned, and a COMMIT
// without an answer is unknown. A statement of a handler lasts as long as the
// handler's context.
func TestPostgresHangs(t *testing.T) {
	own := pgtest.NewServer(t)
	own.Init()
	own.Start()
	for _, row := range []struct {
		name string
		pgx  bool
		size int // of the pool
		held int // turns that handlers hold
	}{
		{"sql, free turns", false, 10, 0},
		{"sql, a small pool", false, 4, 0},
		{"sql, handlers have the turns", false, 10, 5},
		{"sql, one more turn", false, 10, 4},
		{"pgx, free turns", true, 10, 0},
		{"pgx, a small pool", true, 4, 0},
		{"pgx, handlers have the turns", true, 10, 5},
		{"pgx, one more turn", true, 10, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := inPostgres(own.Schema()).migrated(t).of(row.size)
			if row.pgx {
				d = d.native()
			}
			const (
				statement = 3 * time.Second // of the handler's context, longer than the timeout
				notSaved  = "idempotency_store_unavailable"
			)
			release := make(chan struct{})
			defaults := options{Options: idem.Options{Join: true, Lease: 15 * time.Second, Wait: 10 * time.Second,
				Timeout: 2 * time.Second}, handler: statement}
			var handlers sync.WaitGroup
			returned := make([]time.Time, row.held)
			late := lateness(t)
			s := newServer(t, d, defaults, func(w http.ResponseWriter, r *http.Request, s *server) {
				number, err := strconv.Atoi(r.Header.Get("Idempotency-Key"))
				if err != nil {
					create(w, r, s)
					return
				}
				if _, err := countIn(r.Context(), "SELECT 1"); err != nil {
					t.Errorf("before the server hangs: %v", err)
				}
				handlers.Done()
				<-release
				begun := time.Now()
				if deadline, _ := r.Context().Deadline(); number == 0 {
					_, err = countIn(r.Context(), "SELECT 1")
					if err == nil || time.Until(deadline) > 0 {
						t.Errorf("the handler's statement ended after %v with %v, want its context's end", time.Since(begun), err)
					}
				}
				returned[number] = time.Now()
				w.WriteHeader([]int{500, 201, 422}[number%3])
			})
			s.post("warm up", "title").mustBe(t, 201, "")

			var requests sync.WaitGroup
			handlers.Add(row.held)
			for i := range row.held {
				requests.Go(func() {
					a := s.post(strconv.Itoa(i), "title")
					if took := time.Since(returned[i]); took > promised+late() {
						t.Errorf("a handler that answered %d: its answer took %v", []int{500, 201, 422}[i%3], took)
					}
					// Which of the two depends on how far it came.
					if i%3 > 0 && (a.status != 503 || a.code() != notSaved && a.code() != "idempotency_commit_unknown") {
						t.Errorf("a handler that answered %d: got %d %s", []int{500, 201, 422}[i%3], a.status, a.body)
					}
				})
			}
			handlers.Wait()
			goOn := stop(t, own)
			defer goOn()
			var longest atomic.Int64
			for wave := range 12 { // the first at one moment, then one by one
				for i := range 40 {
					if i > 1 && wave > 0 {
						break
					}
					requests.Go(func() {
						begun := time.Now()
						s.post("of wave "+strconv.Itoa(wave)+" "+strconv.Itoa(i), "title").mustBe(t, 503, notSaved)
						longest.Store(max(longest.Load(), int64(time.Since(begun))))
					})
				}
				<-time.After(200 * time.Millisecond)
			}
			close(release)
			requests.Wait()
			if got := time.Duration(longest.Load()); got > promised+late() {
				t.Errorf("a request was held for %v, want at most %v and %v by which the machine was late", got, promised, late())
			}
			goOn()
			deadline := time.Now().Add(patience)
			for a := (answer{}); a.status != 201; a = s.post("afterwards", "title") {
				if time.Now().After(deadline) {
					t.Fatalf("when the server goes on: got %d %s", a.status, a.body)
				}
			}
			mustBeIdle(t, s.db)
		})
	}
}
