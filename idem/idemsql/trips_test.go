package idemsql_test

import (
	"context"
	"database/sql/driver"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// trips collects the first words of statements, each of which is a round trip.
type trips struct {
	mu    sync.Mutex
	words []string
}

func (s *trips) watch(_ context.Context, _ driver.Conn, statement string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
				"mariadb":  "SELECT SET BEGIN INSERT handler UPDATE COMMIT ROLLBACK SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler UPDATE COMMIT",
			},
			replay: map[string]string{
				"postgres": "BEGIN INSERT WITH ROLLBACK",
				"mariadb":  "SELECT",
				"sqlite":   "BEGIN INSERT SELECT ROLLBACK",
			},
		},
		{
			name: "joined, refused", options: joined, status: 422,
			first: map[string]string{
				"postgres": "BEGIN INSERT handler ROLLBACK INSERT",
				"mariadb":  "SELECT SET BEGIN INSERT handler ROLLBACK INSERT UPDATE COMMIT ROLLBACK SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler ROLLBACK UPDATE COMMIT",
			},
			replay: map[string]string{
				"postgres": "BEGIN INSERT WITH ROLLBACK",
				"mariadb":  "SELECT",
				"sqlite":   "BEGIN INSERT SELECT ROLLBACK",
			},
		},
		{
			name: "joined, failed", options: joined, status: 500,
			first: map[string]string{
				"postgres": "BEGIN INSERT handler ROLLBACK",
				"mariadb":  "SELECT SET BEGIN INSERT handler ROLLBACK ROLLBACK SET",
				"sqlite":   "BEGIN INSERT SAVEPOINT handler ROLLBACK",
			},
		},
		{
			name: "with a lease", status: 201,
			first: map[string]string{
				"postgres": "INSERT UPDATE",
				"mariadb":  "SELECT INSERT UPDATE",
				"sqlite":   "SELECT INSERT UPDATE",
			},
			replay: map[string]string{
				"postgres": "INSERT WITH",
				"mariadb":  "SELECT",
				"sqlite":   "SELECT",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				var seen trips
				db := d.watched(t, seen.watch)
				s := serverOn(t, d, db, idemsql.Options{}, test.options, func(w http.ResponseWriter, r *http.Request, s *server) {
					if test.options.Join {
						if _, ok := createOnly(w, r); !ok {
							return
						}
					}
					w.WriteHeader(test.status)
				})
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
