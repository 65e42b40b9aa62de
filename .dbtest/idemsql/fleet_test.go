package idemsql_test

import (
	"database/sql"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

// Duplicates elsewhere pin no connection: with many more of them than there are
// connections, a pool goes on to serve.
func TestDuplicatesPinNothing(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		running, release := make(chan struct{}), make(chan struct{})
		here := newServer(t, d, joined, func(w http.ResponseWriter, r *http.Request, s *server) {
			close(running)
			<-release
			create(w, r, s)
		})
		there := newServer(t, d.of(2), joined, create)
		first := make(chan answer)
		go func() { first <- here.post("key", "title") }()
		<-running
		var wg sync.WaitGroup
		for range 50 {
			// Each through a runner of its own, which asks the store by itself.
			s := serverOn(t, d, there.db, idemsql.Options{}, joined, create)
			wg.Go(func() { s.post("key", "title").mustBe(t, 201, "") })
		}
		for i := range 20 {
			there.post("other "+strconv.Itoa(i), "title").mustBe(t, 201, "")
		}
		close(release)
		(<-first).mustBe(t, 201, "")
		wg.Wait()
		mustCount(t, here.db, "SELECT count(*) FROM tasks", 21)
	})
}

// Two requests that cannot both be right: one of them fails to serialize,
// leaves nothing, and succeeds when it is sent again.
func TestSerializationFailure(t *testing.T) {
	for name, late := range map[string]bool{"at COMMIT": true, "in the handler": false} {
		t.Run(name, func(t *testing.T) {
			inBoth(t, func(t *testing.T, d database) {
				var both sync.WaitGroup
				both.Add(2)
				s := serverOn(t, d, d.open(t), idemsql.Options{Isolation: sql.LevelSerializable}, joined,
					func(w http.ResponseWriter, r *http.Request, s *server) {
						tx, _ := inTx(r.Context())
						n, err := countIn(r.Context(), "SELECT count(*) FROM tasks WHERE title = 'only one'")
						if err != nil {
							t.Error(err)
						}
						if s.runs.Load() <= 2 {
							both.Done()
							both.Wait() // both have read before one of them writes
						}
						if n > 0 {
							w.WriteHeader(http.StatusConflict)
							return
						}
						if !late {
							// Both raise the one row.
							_, err := tx.ExecContext(r.Context(), "UPDATE tasks SET attempt = attempt + 1 WHERE id = 'counter'")
							if err != nil {
								w.WriteHeader(http.StatusInternalServerError)
								return
							}
						}
						if _, err := insert(r.Context(), tx, "only one"); err != nil { // or COMMIT fails, whichever is later
							middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "idempotency_store_unavailable"})
							return
						}
						w.WriteHeader(http.StatusCreated)
					})
				execute(t, s.db, "INSERT INTO tasks (id, title, attempt) VALUES ('counter', 'counter', 0)")
				answers := make(map[string]answer)
				var mu sync.Mutex
				var wg sync.WaitGroup
				for _, key := range []string{"a", "b"} {
					wg.Go(func() {
						a := s.post(key, "title")
						mu.Lock()
						answers[key] = a
						mu.Unlock()
					})
				}
				wg.Wait()
				failure, code := 500, ""
				if late {
					failure, code = 503, "idempotency_store_unavailable"
				}
				created, failed := "a", "b"
				if answers["a"].status != 201 {
					created, failed = "b", "a"
				}
				answers[created].mustBe(t, 201, "")
				answers[failed].mustBe(t, failure, code)
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 2)
				mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 1)
				s.post(failed, "title").mustBe(t, 409, "")
				s.post(created, "title").mustReplay(t, answers[created])
			})
		})
	}
}
