package bench_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	bench "github.com/sallyport-go/sallyport/newest/bench"
)

// served is a peer behind a real listener.
type served struct {
	t    *testing.T
	peer bench.Peer
	url  string
	*bench.Setup
}

func serve(t *testing.T, peer bench.Peer, s *bench.Setup) *served {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go peer.New(s).Serve(ln)
	return &served{t, peer, "http://" + ln.Addr().String(), s}
}

// answer is what a client saw. Whole is false when the body broke off.
type answer struct {
	status int
	header http.Header
	body   string
	whole  bool
}

func (a answer) ids() []string {
	return slices.Concat(a.header.Values("X-Request-Id"), a.header.Values("Svc-Request-Id"))
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 5 * time.Minute}

func (s *served) send(q bench.Request, token, key string) answer {
	r, err := http.NewRequest(q.Method, s.url+q.Path, strings.NewReader(q.Body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", authorization(token))
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err == nil}
}

const aKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

// a question is one row of the table: what a contract says of it, and what to
// do.
type question struct {
	name  string
	right string // what the answer begins with when it is right
	asks  func(bench.Peer) bool
	limit int
	delay time.Duration
	ask   func(s *served) string
}

var questions = []question{
	{"429: Retry-After", "true", gated, 2, 0, func(s *served) string {
		var denied answer
		// On a slow machine units come back meanwhile.
		for n := 0; n < 100 && denied.status != http.StatusTooManyRequests; n++ {
			denied = s.send(list, s.Tokens[0], "")
		}
		wait := denied.header.Get("Retry-After")
		switch n, err := strconv.Atoi(wait); {
		case denied.status != http.StatusTooManyRequests:
			return fmt.Sprint("not denied: ", denied.status)
		case wait == "":
			return "none"
		case err != nil:
			if _, err := http.ParseTime(wait); err != nil {
				return "no HTTP date: " + wait
			}
			return "a date: " + wait
		default:
			<-time.After(time.Duration(n) * time.Second)
			if a := s.send(list, s.Tokens[0], ""); a.status != http.StatusOK {
				return fmt.Sprintf("%d s, and then %d again", n, a.status)
			}
			return fmt.Sprintf("true: %d s, and then 200", n)
		}
	}},
	{"replay: the answer", "the same", replaying, 0, 0, func(s *served) string {
		first, second := s.send(create, s.Tokens[0], aKey), s.send(create, s.Tokens[0], aKey)
		if first.status != second.status || first.body != second.body || s.Runs.Load() != 1 {
			return fmt.Sprintf("%d and %d, ran %d times", first.status, second.status, s.Runs.Load())
		}
		return "the same"
	}},
	{"replay: request ids", "1, of its own", replaying, 0, 0, func(s *served) string {
		first, second := s.send(create, s.Tokens[0], aKey).ids(), s.send(create, s.Tokens[0], aKey).ids()
		switch {
		case len(second) != 1:
			return fmt.Sprint(len(second))
		case len(first) == 1 && first[0] == second[0]:
			return "1, the first one's"
		default:
			return "1, of its own"
		}
	}},
	{"replay: said to be one", "yes", replaying, 0, 0, func(s *served) string {
		s.send(create, s.Tokens[0], aKey)
		if s.send(create, s.Tokens[0], aKey).header.Get("Idempotent-Replayed") == "" {
			return "no"
		}
		return "yes"
	}},
	{"same key, other organization", "its own answer", replaying, 0, 0, func(s *served) string {
		s.send(create, s.Tokens[0], aKey)
		a := s.send(create, s.Tokens[1], aKey)
		if s.Runs.Load() == 2 {
			return "its own answer"
		}
		return fmt.Sprintf("%d, the first organization's answer", a.status)
	}},
	{"same key, other body", "422", replaying, 0, 0, func(s *served) string {
		s.send(create, s.Tokens[0], aKey)
		other := create
		other.Body = `{"title":"Sell the bank"}`
		a := s.send(other, s.Tokens[0], aKey)
		if a.status == http.StatusCreated {
			return "201, the answer to the first body"
		}
		return fmt.Sprint(a.status)
	}},
	{"same key, client gone, then again", "201, ran once", replaying, 0, 200 * time.Millisecond, func(s *served) string {
		impatient := *client
		impatient.Timeout = 50 * time.Millisecond
		for i := range 90 {
			key, before := aKey[:34]+strconv.Itoa(10+i), s.Runs.Load()
			r, _ := http.NewRequest(create.Method, s.url+create.Path, strings.NewReader(create.Body))
			r.Header.Set("Authorization", authorization(s.Tokens[0]))
			r.Header.Set("Idempotency-Key", key)
			if resp, err := impatient.Do(r); err == nil { // the client was slower than the create
				resp.Body.Close()
				continue
			}
			a := s.send(create, s.Tokens[0], key)
			return times(a.status, s.Runs.Load()-before)
		}
		return "answered too early"
	}},
	{"50 at once, one key", "50 × 201, ran once", replaying, 0, 50 * time.Millisecond, func(s *served) string {
		var wg sync.WaitGroup
		var statuses [50]int
		for i := range statuses {
			wg.Go(func() { statuses[i] = s.send(create, s.Tokens[0], aKey).status })
		}
		wg.Wait()
		count := make(map[int]int)
		for _, status := range statuses {
			count[status]++
		}
		var all []string
		for status, n := range count {
			all = append(all, fmt.Sprintf("%d × %d", n, status))
		}
		slices.Sort(all)
		return strings.Join(all, ", ") + ", ran " + often(s.Runs.Load())
	}},
	{"panic after half a body", "no answer that looks whole", gated, 0, 0, func(s *served) string {
		a := s.send(bench.Request{Method: "GET", Path: "/api/v1/half"}, s.Tokens[0], "")
		switch {
		case a.status == http.StatusInternalServerError && !strings.Contains(a.body, `{"data":[`):
			return "no answer that looks whole: 500"
		case !a.whole || a.status == 0:
			return "no answer that looks whole: broken off"
		default:
			return fmt.Sprintf("%d %.14q", a.status, a.body)
		}
	}},
	{"request id on a 401", "yes", gated, 0, 0, func(s *served) string { return one(s.send(list, "", "").ids()) }},
	{"unknown path without a key", "401", gated, 0, 0, func(s *served) string {
		return fmt.Sprint(s.send(bench.Request{Method: "GET", Path: "/api/v1/nothing"}, "", "").status)
	}},
	{"client chooses the request id", "no", gated, 0, 0, func(s *served) string {
		r, _ := http.NewRequest("GET", s.url+list.Path, nil)
		r.Header.Set("X-Request-Id", "<script>")
		r.Header.Set("Svc-Request-Id", "<script>")
		resp, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if slices.Contains(answer{header: resp.Header}.ids(), "<script>") {
			return "yes, any text"
		}
		return "no"
	}},
	{"store of keys down", "503", gated, 0, 0, func(s *served) string {
		s.Down.Store(true)
		return fmt.Sprint(s.send(list, s.Tokens[0], "").status)
	}},
}

func one(ids []string) string {
	if len(ids) == 1 {
		return "yes"
	}
	return fmt.Sprint(len(ids))
}

func often(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

func times(status int, n int64) string { return fmt.Sprintf("%d, ran %s", status, often(n)) }

// TestCorrect sends the same requests to each peer over a connection and logs
// the answers as a table. Only what Sallyport promises is asserted.
func TestCorrect(t *testing.T) {
	peers := slices.DeleteFunc(append(bench.Peers(), bench.Defaults()...), func(p bench.Peer) bool { return !p.Scopes })
	keys := bench.NewSetup(2)
	answers := make([][]string, len(questions))
	t.Run("ask", func(t *testing.T) {
		for i, q := range questions {
			answers[i] = make([]string, len(peers))
			for j, peer := range peers {
				if !q.asks(peer) {
					answers[i][j] = "–"
					continue
				}
				t.Run(peer.Name+"/"+q.name, func(t *testing.T) {
					t.Parallel()
					s := keys.Limited(1e6, time.Hour)
					if q.limit > 0 {
						s = keys.Limited(q.limit, 3*time.Second)
					}
					s.Delay = q.delay
					answers[i][j] = q.ask(serve(t, peer, s))
				})
			}
		}
	})
	var table strings.Builder
	fmt.Fprint(&table, "\n| |")
	for _, p := range peers {
		fmt.Fprintf(&table, " %s |", p.Name)
	}
	fmt.Fprint(&table, "\n|---|", strings.Repeat("---|", len(peers)))
	for i, q := range questions {
		fmt.Fprintf(&table, "\n| %s |", q.name)
		for j, a := range answers[i] {
			mark := ""
			if a != "–" && !strings.HasPrefix(a, q.right) {
				mark = " ✗"
			}
			fmt.Fprintf(&table, " %s%s |", strings.ReplaceAll(a, "|", "\\|"), mark)
			if strings.HasPrefix(peers[j].Name, "sallyport") && mark != "" {
				t.Errorf("%s: got %q, want %q", q.name, a, q.right)
			}
		}
	}
	t.Log(table.String())
}
