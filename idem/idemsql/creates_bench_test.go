package idemsql_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// createsATurn is how many creates each way has before the next way has its
// turn.
const createsATurn = 192

// BenchmarkCreates compares a create that has a transaction of its own and no
// idempotency key with the same create joined and with a lease. The ways take
// turns, so that a busy machine slows all of them. Beside the creates a second
// of each way it reports their ratio to the first, the median of the turns.
func BenchmarkCreates(b *testing.B) {
	for name, open := range map[string]func(testing.TB) database{"postgres": postgres, "mariadb": mariadb, "sqlite": sqliteFile} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(name+"/clients="+strconv.Itoa(clients), func(b *testing.B) {
				d := open(b)
				db := d.open(b)
				db.SetMaxOpenConns(64) // so that 32 joined requests run at once
				db.SetMaxIdleConns(64)
				ways := []struct {
					name  string
					keyed bool
					s     *server
					took  []time.Duration // of each turn
				}{
					{"bare", false, serverOn(b, d, db, idemsql.Options{}, options{}, createInOwn), nil},
					{"joined", true, serverOn(b, d, db, idemsql.Options{}, joined, create), nil},
					{"leased", true, serverOn(b, d, db, idemsql.Options{}, options{}, createInOwn), nil},
				}
				turn := func(n int, s *server, keyed bool) {
					var running sync.WaitGroup
					for i := range clients {
						running.Go(func() {
							for range (n + i) / clients {
								key := ""
								if keyed {
									key = rand.Text()
								}
								if a := s.post(key, "title"); a.status != http.StatusCreated {
									b.Errorf("got %d: %s", a.status, a.body)
									return
								}
							}
						})
					}
					running.Wait()
				}
				for _, w := range ways {
					turn(createsATurn, w.s, w.keyed) // opens the connections
				}
				for b.Loop() {
					for i := range ways {
						w := &ways[i]
						start := time.Now()
						turn(createsATurn, w.s, w.keyed)
						w.took = append(w.took, time.Since(start))
					}
				}
				for _, w := range ways {
					var sum time.Duration
					var ratios []float64
					for i, took := range w.took {
						sum += took
						ratios = append(ratios, ways[0].took[i].Seconds()/took.Seconds())
					}
					b.ReportMetric(float64(len(w.took)*createsATurn)/sum.Seconds(), w.name+"/s")
					if w.keyed {
						slices.Sort(ratios)
						b.ReportMetric(ratios[len(ratios)/2], w.name+"/bare")
					}
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// createInOwn is create with a transaction of its own.
func createInOwn(w http.ResponseWriter, r *http.Request, s *server) {
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer tx.Rollback()
	title, _ := io.ReadAll(r.Body)
	id, err := insert(r.Context(), tx, string(title))
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, id)
}
