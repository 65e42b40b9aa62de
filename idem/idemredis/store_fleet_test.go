package idemredis_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
)

// A server is killed again and again while it creates. Every key is then tried
// until it has an answer.
func TestKilledServers(t *testing.T) {
	for _, reexecute := range []bool{false, true} {
		t.Run(fmt.Sprintf("reexecute %v", reexecute), func(t *testing.T) {
			t.Parallel()
			const kills, clients = 6, 8
			redisAddr := redistest.Start(t).Options().Addr
			file := filepath.Join(t.TempDir(), "rows")
			var mu sync.Mutex
			seen := map[string]string{} // the first answer to each key; "" is none
			for kill := range kills {
				p := startProcess(t, redisAddr, file, 600*time.Millisecond, reexecute)
				var wg sync.WaitGroup
				for client := range clients {
					wg.Go(func() {
						for n := 0; ; n++ {
							key := fmt.Sprintf("%d-%d-%d", kill, client, n)
							a, err := p.post(key)
							mu.Lock()
							seen[key] = a.body
							mu.Unlock()
							if err != nil {
								mu.Lock()
								seen[key] = ""
								mu.Unlock()
								return
							}
							if a.status != 201 {
								t.Errorf("key %s: got %d\n%s", key, a.status, a.body)
								return
							}
						}
					})
				}
				// One that certainly dies in the middle, beside those that the
				// kill happens to meet.
				held := fmt.Sprint("held-", kill)
				mu.Lock()
				seen[held] = ""
				mu.Unlock()
				wg.Go(func() {
					if a, err := p.post(held); err == nil {
						t.Errorf("key %s: got %d, want no answer", held, a.status)
					}
				})
				redistest.Eventually(t, "the request to be killed has begun", func() bool { return len(rowsIn(t, file)[held]) > 0 })
				p.kill()
				wg.Wait()
			}

			p := startProcess(t, redisAddr, file, 600*time.Millisecond, reexecute)
			keys := make(chan string)
			unknown := map[string]bool{}
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for key := range keys {
						a, err := p.post(key)
						mu.Lock()
						first := seen[key]
						switch {
						case err != nil:
							t.Error(err)
						case a.status == 409 && strings.Contains(a.body, "idempotency_outcome_unknown"):
							unknown[key] = true
							if first != "" {
								t.Errorf("key %s: an unknown outcome, after the answer %q", key, first)
							}
						case a.status != 201 || first != "" && a.body != first:
							t.Errorf("key %s: got %d %q, after the answer %q", key, a.status, a.body, first)
						}
						mu.Unlock()
					}
				})
			}
			for key := range seen {
				keys <- key
			}
			close(keys)
			wg.Wait()

			rows := rowsIn(t, file)
			repeated := 0
			for key := range seen {
				attempts := rows[key]
				switch {
				case len(attempts) > 1 && !reexecute, len(attempts) == 0 && !unknown[key]:
					t.Errorf("key %s: attempts %v, unknown %v", key, attempts, unknown[key])
				case len(attempts) > 1:
					repeated++
				}
				if seen[key] != "" && len(attempts) != 1 {
					t.Errorf("key %s was answered at once and has attempts %v", key, attempts)
				}
				if unique := slices.Compact(slices.Clone(attempts)); !slices.IsSorted(attempts) || len(unique) != len(attempts) {
					t.Errorf("key %s: attempts %v", key, attempts)
				}
			}
			t.Logf("%d keys, %d unknown, %d with a second attempt that the route asked for", len(seen), len(unknown), repeated)
			if len(unknown) < kills && !reexecute || len(unknown) > 0 && reexecute {
				t.Errorf("%d outcomes are unknown after %d kills", len(unknown), kills)
			}
		})
	}
}
