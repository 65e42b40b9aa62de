package rules

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

// served calls look with a probe of a handler, in a bubble where waiting costs
// no time.
func served(t *testing.T, handler http.HandlerFunc, look func(p *probe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network, stop := reference.Serve(func(s *http.Server) { s.Handler = handler })
		defer stop()
		to := Target{URL: "http://kit.test", Keys: reference.Keys(), Dial: network.Dial, Burst: 60}
		to.Creates = []Create{{Path: reference.Tasks, Body: `{"title":"{{random}}"}`}}
		base, err := to.complete()
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{target: to, base: base, redact: newRedactor(to.Keys), have: to.offered()}
		s.seen.ids = make(map[string]request)
		defer s.Close()
		look(&probe{Session: s, ctx: t.Context()})
	})
}

// answering gives one answer after the other, and the last one for ever: a
// status and, behind a space, its Retry-After. It counts them.
func answering(sent *int, answers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, wait := 0, ""
		_, _ = fmt.Sscan(answers[min(*sent, len(answers)-1)], &status, &wait)
		if wait != "" {
			w.Header().Set("Retry-After", wait)
		}
		*sent++
		w.WriteHeader(status)
	}
}

// A create in progress is repeated after the wait that its answer asks for, if
// that makes sense.
func TestSettled(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		answers []string // status and Retry-After
		last    int
		sent    int
		took    time.Duration
	}{
		"at once":       {[]string{"201"}, 201, 1, 0},
		"refused":       {[]string{"422"}, 422, 1, 0},
		"408":           {[]string{"408"}, 408, 1, 0},
		"410":           {[]string{"410"}, 410, 1, 0},
		"424":           {[]string{"424"}, 424, 1, 0},
		"426":           {[]string{"426"}, 426, 1, 0},
		"without waits": {[]string{"409", "425", "201"}, 201, 3, 2 * s},
		"with waits":    {[]string{"409 3", "409 0", "409 9", "201"}, 201, 4, 9 * s},
		"never":         {[]string{"409"}, 409, 11, 10 * s},
	} {
		sent := 0
		served(t, answering(&sent, test.answers...), func(p *probe) {
			start := time.Now()
			a := p.settled(p.create(0, p.full()))
			if took := time.Since(start); a.status != test.last || sent != test.sent || took != test.took {
				t.Errorf("%s: got %d after %d requests and %v", name, a.status, sent, took)
			}
		})
	}
}

// A key that was issued is none that the check made up.
func TestInvalidKeyIsNotIssued(t *testing.T) {
	const live, test = "svc_live_12345678", "svc_test_12345678"
	served(t, func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get("Authorization"); token != "Bearer "+live && token != "Bearer "+test {
			w.WriteHeader(401)
		}
	}, func(p *probe) {
		p.target.Keys, p.places = map[string]string{"full": live, "sandbox": test}, make(chan struct{}, 1)
		wantEnd(t, "an issued key", Held, func() { authChecks["auth/invalid-key"](p) })
	})
}

// A server that is busy is asked again a few times, if it says to come soon.
func TestTooBusy(t *testing.T) {
	for name, test := range map[string]struct {
		answers []string // status and Retry-After
		last    int
		sent    int
	}{
		"for a while":     {[]string{"503 1", "503 5", "200"}, 200, 3},
		"a 429 too":       {[]string{"503 1", "429 1", "503 1", "200"}, 200, 4},
		"for long":        {[]string{"503 6"}, 503, 1},
		"without a wait":  {[]string{"503"}, 503, 1},
		"another failure": {[]string{"500 1"}, 500, 1},
		"never less":      {[]string{"503 1"}, 503, 6},
	} {
		sent := 0
		handler := answering(&sent, test.answers...)
		served(t, handler, func(p *probe) {
			if a := p.do(p.read(p.full())); a.status != test.last || sent != test.sent {
				t.Errorf("%s: got %d after %d requests", name, a.status, sent)
			}
		})
		sent = 0
		served(t, handler, func(p *probe) {
			answers := p.sequence(p.read(p.full()), p.read(p.full()))
			if len(answers) != 2 || (answers[0].status == 200) != (test.last == 200) {
				t.Errorf("%s: on one connection got %v", name, answers)
			}
		})
	}
}

// What is answered 503 to the last costs its waits a few times only: a server
// that says it in place of 401 would use up the time of all checks.
func TestAlwaysBusy(t *testing.T) {
	sent := 0
	served(t, answering(&sent, "503 5"), func(p *probe) {
		for range 10 {
			p.do(p.read(p.full()))
		}
		if want := maxRefused*(1+maxBusy) + 10 - maxRefused; sent != want {
			t.Errorf("sent %d requests, want %d", sent, want)
		}
	})
}

// A 429 is asked well before its wait ends, then when it ends, then for a while.
func TestObserve(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	fixed := func(text string) func(time.Duration) string { return func(time.Duration) string { return text } }
	grows := func(passed time.Duration) string { return fmt.Sprint(8 + int(passed/(100*ms))) }
	left := func(window time.Duration) func(time.Duration) string {
		return func(passed time.Duration) string { return fmt.Sprint(int((window - passed + s - 1) / s)) }
	}
	for name, test := range map[string]struct {
		until    time.Duration // requests are refused
		wait     func(passed time.Duration) string
		asked    time.Duration
		after    time.Duration
		admitted bool
		sent     int
		took     time.Duration
	}{
		"a short wait":      {2 * s, left(2 * s), 2 * s, 2*s + 20*ms, true, 2, 2*s + 20*ms},
		"a wait":            {3 * s, left(3 * s), 3 * s, 3*s + 20*ms, true, 4, 3*s + 830*ms},
		"over soon":         {s / 10, fixed("8"), 8 * s, 160 * ms, true, 2, 160 * time.Millisecond},
		"over early":        {s, fixed("8"), 8 * s, 2 * s, true, 3, 2*s + 160*ms},
		"a wait that grows": {s / 2, grows, 9 * s, 9*s + 20*ms, true, 3, 9*s + 180*ms},
		"rounded down":      {s + s/2, fixed("1"), s, 2*s + 20*ms, true, 3, 2*s + 20*ms},
		"too short":         {5 * s, fixed("1"), s, 5*s + 20*ms, false, 6, 5*s + 20*ms},
		"no wait":           {10*s + s/2, fixed("x"), 0, 11 * s, false, 12, 11 * s},
		"never":             {time.Hour, fixed("1"), s, 0, false, 63, 62*s + 20*ms},
		"two minutes":       {2 * time.Minute, fixed("120"), 120 * s, 120*s + 20*ms, true, 4, 152*s + 420*ms},
		"longer":            {time.Hour, fixed("121"), 121 * s, 0, false, 63, 92*s + 400*ms},
		"over at once":      {0, fixed("8"), 8 * s, 0, true, 1, 0},
	} {
		sent, start := 0, time.Time{}
		served(t, func(w http.ResponseWriter, _ *http.Request) {
			sent++
			if passed := time.Since(start); passed < test.until {
				w.Header().Set("Retry-After", test.wait(passed))
				w.WriteHeader(429)
			}
		}, func(p *probe) {
			start = time.Now()
			burst := answer{status: 429, header: http.Header{"Retry-After": {test.wait(0)}}}
			o := p.observe(burst)
			took := time.Since(start)
			if o.asked != test.asked || o.after != test.after || o.admitted != test.admitted || sent != test.sent ||
				took != test.took || (o.err != nil) != (test.asked == 0) || o.denied.status != 429 ||
				(o.last.status == 200) == (o.after == 0 && test.until > 0) {
				t.Errorf("%s: got %+v after %d requests and %v", name, o, sent, took)
			}
		})
	}
}

// The limit is looked for twice: what it allows at once, and what comes free.
func TestFindLimit(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	window := limit{found: true, capacity: 40, units: 39, wait: 5370 * ms}
	for name, test := range map[string]struct {
		defect string
		limit  int
		want   limit
		waits  int
		odd    int
		took   time.Duration
	}{
		"none":     {"free-clock", 0, limit{capacity: 60}, 0, 0, 0},
		"a window": {"free-plain", 40, window, 2, 0, 10740 * ms},
		"no wait":  {"rate-bare", 40, limit{found: true, capacity: 40, units: 39, wait: 5 * s}, 2, 0, 10 * s},
		"for ever": {"rate-for-ever", 40,
			limit{found: true, stuck: true, capacity: 40, units: 40}, 1, 0, 66370 * ms},
		"in milliseconds": {"rate-milliseconds", 40,
			limit{found: true, capacity: 40, units: 39, wait: 32400 * ms}, 2, 0, 64800 * ms},
		"one":     {"free-plain", 1, limit{found: true, capacity: 1, units: 1, wait: 5370 * ms}, 2, 0, 10740 * ms},
		"503":     {"rate-503", 40, window, 2, 6, 10740 * ms},
		"dropped": {"rate-dropped", 40, limit{capacity: 40}, 0, 6, 5 * s},
	} {
		server := reference.New(test.defect)
		server.Limit, server.Window = test.limit, 5*s
		served(t, server.ServeHTTP, func(p *probe) {
			p.sample.body = `{"organization": ""}`
			start := time.Now()
			p.findLimit()
			got, took := p.limit, time.Since(start)
			if got.found != test.want.found || got.stuck != test.want.stuck || got.capacity != test.want.capacity ||
				got.units != test.want.units || got.wait != test.want.wait || took != test.took {
				t.Errorf("%s: got %+v after %v", name, got, took)
			}
			known := (got.face != "") == (test.defect == "rate-503")
			if len(got.waits) != test.waits || len(got.odd) < test.odd || !known {
				t.Errorf("%s: got %d waits, %d odd answers, the face %q", name, len(got.waits), len(got.odd), got.face)
			}
		})
	}
}

// A crowd calls for 5 s, or longer where a server is slow. TestFindLimit has one
// that a call ends.
func TestCrowd(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for latency, want := range map[time.Duration]struct {
		workers int
		took    time.Duration
	}{0: {8, 5 * s}, 100 * ms: {8, 5 * s}, 101 * ms: {16, 5 * s}, 200 * ms: {16, 6 * s}} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{Session: &Session{latency: latency}, ctx: t.Context()}
			start, calls := time.Now(), make([]atomic.Int64, 99)
			p.crowd(func(worker int) bool {
				calls[worker].Add(1)
				time.Sleep(100 * ms)
				return true
			})
			took := time.Since(start)
			first, last, none := calls[0].Load(), calls[want.workers-1].Load(), calls[want.workers].Load()
			if took != want.took || first != int64(took/(100*ms)) || last != first || none != 0 {
				t.Errorf("%v: got %d, %d and %d calls in %v", latency, first, last, none, took)
			}
		})
	}
}

// A server that refuses otherwise than with a 429 is waited for, half a minute
// at most.
func TestRecover(t *testing.T) {
	const s = time.Second
	const a, b = `{"a": 1}`, `{"b": 1}`
	for name, test := range map[string]struct {
		answer func(passed time.Duration) (status int, body string)
		took   time.Duration
	}{
		"fine":   {func(time.Duration) (int, string) { return 200, a }, s},
		"later":  {func(d time.Duration) (int, string) { return 503 - 303*int(d/(9*s)), a }, 9 * s},
		"never":  {func(time.Duration) (int, string) { return 503, a }, 30 * s},
		"an app": {func(d time.Duration) (int, string) { return 200, [2]string{b, a}[d/(20*s)] }, 20 * s},
	} {
		start := time.Time{}
		served(t, func(w http.ResponseWriter, _ *http.Request) {
			status, body := test.answer(time.Since(start))
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
		}, func(p *probe) {
			start, p.sample.body = time.Now(), `{"a": 2}`
			p.recover()
			if took := time.Since(start); took != test.took {
				t.Errorf("%s: took %v, want %v", name, took, test.took)
			}
		})
	}
}
