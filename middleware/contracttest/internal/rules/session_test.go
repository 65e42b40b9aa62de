package rules

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	const s = time.Second
	to := Target{URL: "http://kit.test", Creates: []Create{{Path: "/a"}, {Path: "/b", List: "/c"}}}
	const begins = "Checking http://kit.test, which answers in 1s. It takes some "
	const limited = "It has a rate limit: some 40 requests at once, then some "
	const higher = "Most of the time the check waits for it: lend the keys a higher one, such as 40 a second.\n"
	const ends = "POST /a creates resources that are not removed. Duplicates cannot be seen: no route lists them.\n" +
		"POST /b creates resources that are not removed. GET /c shows them.\n"
	for name, test := range map[string]struct {
		l                limit
		takes, most, has string
	}{
		"none":       {limit{}, "4m7s", "6m7s", ""},
		"not found":  {limit{capacity: 1}, "4m7s", "6m7s", "No rate limit was reached within 1 requests.\n"},
		"not yet":    {limit{found: true, wait: s}, "4m7s", "6m7s", limited + "0 in 1s.\n"},
		"found":      {limit{found: true, units: 25, wait: 5 * s / 4}, "5m0s", "7m0s", limited + "25 in 1.25s.\n"},
		"few":        {limit{found: true, units: 5, wait: s}, "6m49s", "8m49s", limited + "5 in 1s.\n"},
		"one by one": {limit{found: true, units: 1, wait: s}, "16m49s", "18m49s", limited + "1 in 1s.\n" + higher},
		"slow":       {limit{found: true, units: 1, wait: 9 * s}, "24m7s", "26m7s", limited + "1 in 9s.\n" + higher},
	} {
		if test.l.found {
			test.l.capacity = 40
		}
		session := &Session{target: to, latency: s, limit: test.l, redact: newRedactor(nil)}
		if got, want := session.Plan(), begins+test.takes+", and at most "+test.most+".\n"+test.has+ends; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	to.Creates[0].List = "/a"
	session := &Session{target: to, redact: newRedactor(nil), effects: effects{counted: true}}
	if got := session.Plan(); !strings.Contains(got, "GET /a is counted") || !strings.Contains(got, "GET /c shows them") {
		t.Errorf("counted: got %q", got)
	}
	session.creates = 2 * s
	if got := session.Plan(); !strings.Contains(got, "in 0s and creates in 2s. It takes some 8m7s, and at most 10m7s.") {
		t.Errorf("slow creates: got %q", got)
	}
	for _, slow := range []*Session{{latency: s}, {creates: s}} {
		if got := slow.patience(); got != 20*s {
			t.Errorf("the patience with a slow server: got %v", got)
		}
	}
}

// What each response shows is noted once.
func TestNote(t *testing.T) {
	const key = "svc_live_8fJ2mQx7LpZ4wRtYk1Vb3NcD5sGh6A"
	keyed := func(key string) request { return get("/", "").with("Idempotency-Key: " + key) }
	a := func(to request, id ...string) answer {
		return answer{to: to, status: 200, header: http.Header{"Svc-Request-Id": id}}
	}
	header := func(name, value string) answer {
		a := a(get("/", ""), "1")
		a.header.Set(name, value)
		return a
	}
	limited, secret := header("Retry-After", "soon"), a(get("/", ""), "secret")
	limited.status, secret.body = 429, "for "+key
	inOrder, returned := header("Retry-After", "1"), secret
	inOrder.status, returned.to.path = 429, "/?key="+key
	for name, test := range map[string]struct {
		answers                           []answer
		without, repeated, waits, secrets int
	}{
		"ids":                   {[]answer{a(get("/", ""), "1"), a(get("/", ""), "2")}, 0, 0, 0, 0},
		"no id":                 {[]answer{a(get("/", ""))}, 1, 0, 0, 0},
		"an empty id":           {[]answer{a(get("/", ""), " ")}, 1, 0, 0, 0},
		"two ids":               {[]answer{a(get("/", ""), "1", "2")}, 1, 0, 0, 0},
		"an id twice":           {[]answer{a(get("/", ""), "1"), a(get("/", ""), "1")}, 0, 1, 0, 0},
		"of a stored response":  {[]answer{a(keyed("k"), "1"), a(keyed("k"), "1")}, 0, 0, 0, 0},
		"of two creates":        {[]answer{a(keyed("k"), "1"), a(keyed("l"), "1")}, 0, 1, 0, 0},
		"of a create and a GET": {[]answer{a(keyed("k"), "1"), a(get("/", ""), "1")}, 0, 1, 0, 0},
		"of the client": {[]answer{a(get("/", "").with("Svc-Request-Id: 1"), "1"), a(get("/", ""), "1")},
			0, 0, 0, 0},
		"a 429":            {[]answer{limited}, 0, 0, 1, 0},
		"a 200":            {[]answer{header("Retry-After", "soon")}, 0, 0, 0, 0},
		"a 429 in order":   {[]answer{inOrder}, 0, 0, 0, 0},
		"a key":            {[]answer{secret}, 0, 0, 0, 1},
		"a key in a line":  {[]answer{header("X", key)}, 0, 0, 0, 1},
		"a key in a name":  {[]answer{header("X-"+key, "x")}, 0, 0, 0, 1},
		"the client's key": {[]answer{returned}, 0, 0, 0, 0},
	} {
		s := &Session{redact: newRedactor(map[string]string{"full": key})}
		s.target.RequestIDHeader, s.seen.ids = "Svc-Request-Id", make(map[string]request)
		for _, a := range test.answers {
			s.note(a)
		}
		if len(s.seen.without) != test.without || len(s.seen.repeated) != test.repeated ||
			len(s.seen.waits) != test.waits || len(s.seen.secrets) != test.secrets {
			t.Errorf("%s: got %+v", name, s.seen)
		}
	}
}

// What servers answer by themselves, without the program, is not noted.
func TestNoteOwn(t *testing.T) {
	for _, test := range []struct {
		status int
		date   string
		noted  bool
	}{{200, "now", true}, {200, "", false}, {199, "now", false}, {401, "now", true}, {0, "", false}} {
		s := &Session{redact: newRedactor(nil)}
		s.noteOwn(answer{status: test.status, header: http.Header{"Date": {test.date}}})
		if got := len(s.seen.without) == 1; got != test.noted {
			t.Errorf("%d, Date %q: got %t", test.status, test.date, got)
		}
	}
}

// A report shows the fault of the shortest request, and counts all.
func TestReport(t *testing.T) {
	p := &probe{Session: &Session{}, ctx: t.Context()}
	with := func(status, lines int) fault {
		return fault{answer{to: request{method: "GET", lines: make([]string, lines)}, status: status}, "no id"}
	}
	faults := []fault{with(401, 2), with(200, 1), with(401, 3)}
	end := ended(func() { p.report(&faults, "a response") })
	want := "a response: no id (1 × 200, 2 × 401)"
	if end == nil || end.status != Broken || end.detail != want || end.answer.status != 200 {
		t.Errorf("got %+v", end)
	}
	faults = faults[:1]
	if end := ended(func() { p.report(&faults, "a response") }); end == nil || end.answer.status != 401 {
		t.Errorf("one fault: got %+v", end)
	}
	faults = nil
	wantEnd(t, "no fault", Held, func() { p.report(&faults, "a response") })
}
