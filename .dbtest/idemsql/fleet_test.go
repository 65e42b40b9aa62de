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

// Two requests that cannot both be right: COMMIT of one of them fails to
// serialize. It leaves nothing, and succeeds when it is sent again.
func TestSerializationFailure(t *testing.T) {
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
				if _, err := insert(r.Context(), tx, "only one"); err != nil { // or COMMIT fails, whichever is later
					middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "idempotency_store_unavailable"})
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
		keys := []string{"a", "b"}
		var answers [2]answer
		var wg sync.WaitGroup
		for i, key := range keys {
			wg.Go(func() { answers[i] = s.post(key, "title") })
		}
		wg.Wait()
		created, failed := 0, 1
		if answers[0].status != 201 {
			created, failed = 1, 0
		}
		answers[created].mustBe(t, 201, "")
		answers[failed].mustBe(t, 503, "idempotency_store_unavailable")
		mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
		mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 1)
		s.post(keys[failed], "title").mustBe(t, 409, "")
		s.post(keys[created], "title").mustReplay(t, answers[created])
	})
}
