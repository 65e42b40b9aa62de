package idemsql_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
)

func TestPostgresKilled(t *testing.T) {
	t.Parallel()
	own := pgtest.NewServer(t)
	own.Start()
	inPostgres := func() database { return inPostgres(own.Schema()).migrated(t) }
	t.Run("sql", func(t *testing.T) { testServerKilled(t, own, inPostgres) })
	t.Run("pgx", func(t *testing.T) { testServerKilled(t, own, func() database { return inPostgres().native() }) })
}

func TestMariaDBKilled(t *testing.T) {
	t.Parallel()
	own := sqltest.NewMariaDB(t)
	own.Start()
	testServerKilled(t, own, func() database { return inMariaDB(own.Database()).migrated(t) })
}

// A server is killed and comes back: no request hangs, nothing is done twice,
// and service goes on by itself.
func testServerKilled(t *testing.T, own interface {
	Start()
	Kill()
}, newDatabase func() database) {
	for _, mode := range []string{"joined", "leased"} {
		t.Run(mode, func(t *testing.T) {
			d := newDatabase()
			o := options{Options: idem.Options{
				Join: mode == "joined", Wait: time.Second, Timeout: 30 * time.Second, Lease: crashLease,
			}}
			var servers [2]*server
			for i := range servers {
				servers[i] = newServer(t, d, o, create)
			}
			var n atomic.Int64
			clients := startCrowd(t, 8, func(key string) (a answer, err error) {
				within(t, "a request", func() { a = servers[n.Add(1)%2].post(key, key) })
				return a, nil
			})
			for range max(kills/5, 1) {
				<-time.After(300 * time.Millisecond)
				own.Kill()
				own.Start()
			}
			before := clients.next.Load()
			for clients.next.Load() < before+100 && !t.Failed() { // service resumes
				<-time.After(10 * time.Millisecond)
			}
			clients.leave()
			for _, s := range servers {
				if err := s.Guard().WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
			}
			created, unknown := clients.stop()
			t.Logf("%s: %d keys, %d of them with an unknown outcome", mode, created+unknown, unknown)
			db := d.open(t)
			mustCount(t, db, "SELECT count(*) - count(DISTINCT title) FROM tasks", 0)
			rows := count(t, db, "SELECT count(*) FROM tasks")
			if mode == "joined" && (unknown != 0 || rows != created) || rows < created || rows > created+unknown {
				t.Errorf("got %d rows for %d tasks created and %d unknown", rows, created, unknown)
			}
		})
	}
}
