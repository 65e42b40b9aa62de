package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A Join whose statement began before another's reply was committed, and that
// gets the lock of the key after that, finds the reply.
func TestReplyCommittedAfterSnapshot(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			inBoth(t, func(t *testing.T, d database) {
				db := d.open(t)
				c := claim("key")
				_, first := join(t, d.on(db, idemsql.Options{}), c, idem.Claimed)

				// The second one's statement waits here before it asks for the lock.
				execute(t, db, `
				CREATE FUNCTION pg_try_advisory_xact_lock(integer, integer) RETURNS boolean LANGUAGE plpgsql AS $$
				BEGIN
					PERFORM pg_advisory_xact_lock(hashtext(current_schema()));
					RETURN pg_catalog.pg_try_advisory_xact_lock($1, $2);
				END $$`)
				gate, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer gate.Rollback()
				execute(t, gate, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
				slow := d.with("search_path", d.conf.RuntimeParams["search_path"]+", pg_catalog")
				second := slow.on(slow.open(t), idemsql.Options{Isolation: level})
				type answer struct {
					record idem.Record
					joined idem.Transaction
					err    error
				}
				answers := make(chan answer)
				go func() {
					r, j, err := second.Join(t.Context(), again(c), 0)
					answers <- answer{r, j, err}
				}()
				for count(t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = current_setting('application_name') AND wait_event = 'advisory'`) == 0 {
					runtime.Gosched()
				}

				mustEnd(t, first, finished("answer"))
				gate.Rollback()
				a := <-answers
				if a.joined != nil {
					a.joined.Settle(t.Context(), outcomeFree)
				}
				if a.err != nil || a.record.State != idem.Done || string(a.record.Payload) != "answer" {
					t.Errorf("got %v %q, error %v, want the reply", a.record.State, a.record.Payload, a.err)
				}
			})
		})
	}
}

// trips collects the first words of statements, each of which is a round trip.
type trips struct {
	mu    sync.Mutex
	words []string
}

func (s *trips) watch(_ context.Context, _ driver.Conn, statement string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if statement == sqltest.Row {
		return nil
	}
	word, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	if strings.Contains(statement, "INTO tasks") {
		word = "handler"
	}
	s.words = append(s.words, word)
	return nil
}

// take returns what has been collected, and forgets it.
func (s *trips) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	words := s.words
	s.words = nil
	return words
}

// A request takes so many round trips and no more.
func TestTrips(t *testing.T) {
	joinedReplay := map[string]string{
		"postgres": "BEGIN INSERT WITH ROLLBACK", "pgx": "begin+INSERT WITH rollback",
		"mariadb": "SELECT", "sqlite": "BEGIN INSERT SELECT ROLLBACK",
	}
	for _, test := range []struct {
		name    string
		options options
		status  int // of the handler
		first   map[string]string
		replay  map[string]string // empty where the first left nothing
	}{
		{
			name: "joined, created", options: joined, status: 201,
			first: map[string]string{
				"postgres": "BEGIN INSERT handler UPDATE COMMIT",
				"pgx":      "begin+INSERT handler WITH+commit",
				"mariadb":  "SELECT SET BEGIN INSERT handler UPDATE COMMIT ROLLBACK SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler UPDATE COMMIT",
			},
			replay: joinedReplay,
		},
		{
			name: "joined, refused", options: joined, status: 422,
			first: map[string]string{
				"postgres": "BEGIN INSERT handler ROLLBACK INSERT",
				"pgx":      "begin+INSERT handler rollback INSERT",
				"mariadb":  "SELECT SET BEGIN INSERT handler ROLLBACK INSERT UPDATE COMMIT ROLLBACK SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler ROLLBACK UPDATE COMMIT",
			},
			replay: joinedReplay,
		},
		{
			name: "joined, failed", options: joined, status: 500,
			first: map[string]string{
				"postgres": "BEGIN INSERT handler ROLLBACK SELECT",
				"pgx":      "begin+INSERT handler rollback",
				"mariadb":  "SELECT SET BEGIN INSERT handler ROLLBACK ROLLBACK SELECT SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler ROLLBACK",
			},
		},
		{
			name: "with a lease", status: 201,
			first: map[string]string{
				"postgres": "INSERT handler UPDATE", "pgx": "INSERT handler UPDATE",
				"mariadb": "SELECT INSERT handler UPDATE", "sqlite": "SELECT INSERT handler UPDATE",
			},
			replay: map[string]string{"postgres": "INSERT WITH", "pgx": "INSERT WITH", "mariadb": "SELECT", "sqlite": "SELECT"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				var seen trips
				db := d.watched(t, seen.watch)
				s := serverOn(t, d, db, idemsql.Options{}, test.options, func(w http.ResponseWriter, r *http.Request, s *server) {
					if _, ok := createOnly(w, r, s); ok {
						w.WriteHeader(test.status)
					}
				})
				warm(t, s.store)
				seen.take()
				s.post("key", "title").mustBe(t, test.status, "")
				if got := seen.take(); !slices.Equal(got, strings.Fields(test.first[d.name])) {
					t.Errorf("got %v, want %s", got, test.first[d.name])
				}
				if test.replay == nil {
					return
				}
				s.post("key", "title").mustBe(t, test.status, "")
				if got := seen.take(); !slices.Equal(got, strings.Fields(test.replay[d.name])) {
					t.Errorf("a replay: got %v, want %s", got, test.replay[d.name])
				}
			})
		})
	}
}
