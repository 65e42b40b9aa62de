package rules

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Duplicates come at one time, and again when a limit admits less than two.
func TestAtOnce(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		admits   int // in a second
		aborts   bool
		answers  int
		status   Status
		detail   string
		requests int
		took     time.Duration
	}{
		"all":     {admits: 99, answers: 7, requests: 7},
		"two":     {admits: 2, answers: 2, requests: 7},
		"one":     {admits: 1, status: Unclear, detail: "the rate limit leaves no room", requests: 35, took: 5 * s},
		"none":    {admits: 0, status: Unclear, detail: "the rate limit leaves no room", requests: 35, took: 5 * s},
		"aborted": {aborts: true, status: Broken, detail: "got no response", requests: 35},
	} {
		var mu sync.Mutex
		var second time.Time
		requests, used, running, most := 0, 0, 0, 0
		served(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			if time.Since(second) >= s {
				second, used = time.Now(), 0
			}
			requests, used, running = requests+1, used+1, running+1
			most = max(most, running)
			admitted := used <= test.admits
			mu.Unlock()
			time.Sleep(s / 10)
			mu.Lock()
			running--
			mu.Unlock()
			switch {
			case test.aborts || !strings.HasSuffix(string(body), `"}`):
				panic(http.ErrAbortHandler)
			case !admitted:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(429)
			default:
				w.WriteHeader(201)
			}
		}, func(p *probe) {
			start := time.Now()
			var answers []answer
			end := ended(func() { answers = p.atOnce(p.create(0, p.full()), 7) })
			took := time.Since(start)
			inTime := took >= test.took && took <= test.took+s
			if len(answers) != test.answers || requests != test.requests || most != 7 || !inTime {
				t.Errorf("%s: got %d answers to %d requests, %d at once, in %v", name, len(answers), requests, most, took)
			}
			for _, a := range answers {
				if a.status != 201 {
					t.Errorf("%s: got %v", name, a)
				}
			}
			if (end == nil) != (test.status == "") ||
				end != nil && (end.status != test.status || !strings.HasPrefix(end.detail, test.detail)) {
				t.Errorf("%s: got %+v", name, end)
			}
			if noted := len(p.seen.without); noted != requests && !test.aborts {
				t.Errorf("%s: noted %d of %d responses", name, noted, requests)
			}
		})
	}
}
