package rules

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Session checks one target.
type Session struct {
	target  Target
	base    *url.URL
	have    []string      // names of offers
	http2   bool          // the server speaks it
	latency time.Duration // of a GET
	creates time.Duration // that a create takes
	redact  *redactor
	effects effects
	limit   limit
	sample  answer // what a full key gets for the read
	silent  bool   // the response to a create does not name what was made
	echoes  bool   // it holds nothing that the server made, so that equal bodies get equal responses

	clients sync.Map // *http.Client, by the key and the version of HTTP

	places chan struct{} // one for each check that runs, and more for what checks do at one time

	refused     atomic.Int64 // requests that were answered 503 to the last
	mu          sync.Mutex
	pausedUntil time.Time
	seen        seen
}

// Open looks at the target once. Its error says in one sentence what is wrong
// with the target, or all that is wrong with its description.
func Open(ctx context.Context, t Target) (*Session, error) {
	keys := newRedactor(t.Keys)
	base, err := t.complete()
	if err != nil {
		return nil, errors.New(keys.text(err.Error()))
	}
	s := &Session{target: t, base: base, have: t.offered(), redact: keys}
	s.seen.ids = make(map[string]request)
	if err := s.look(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.places = make(chan struct{}, 6)
	if s.effects.counted {
		s.places = make(chan struct{}, 1) // or one check would count the resources of another
	}
	return s, nil
}

// Close drops the connections.
func (s *Session) Close() {
	for _, c := range s.clients.Range {
		c.(*http.Client).CloseIdleConnections()
	}
}

func (s *Session) key(name string) string { return s.target.Keys[name] }

func (s *Session) full() string { return s.target.Keys["full"] }

func (s *Session) has(name string) bool { return slices.Contains(s.have, name) }

// patience is how long a response may take.
func (s *Session) patience() time.Duration { return 10*time.Second + 10*s.slowest() }

// slowest is how long a request takes that is known to take long.
func (s *Session) slowest() time.Duration { return max(s.latency, s.creates) }

// expected is how long the checks take, by the speed of the server.
func (s *Session) expected() time.Duration {
	creates := time.Duration(54 + 13*len(s.target.Creates)) // one after the other
	requests := time.Duration(240)
	if s.effects.counted { // no two checks run at one time
		creates, requests = 3*creates, 1700
	}
	d := 7*time.Second + requests*s.latency + creates*(s.slowest()-s.latency) + s.limitWaits()
	return d.Round(time.Second)
}

// limitWaits is how much of that the checks wait for the rate limit. Some use it
// up, and 750 requests come in portions of what it allows.
func (s *Session) limitWaits() time.Duration {
	if !s.limit.found || s.limit.units <= 0 {
		return 0
	}
	return min(20*time.Minute, time.Duration(12+750/s.limit.units)*s.limit.wait)
}

// Budget is how long the checks may take.
func (s *Session) Budget() time.Duration { return s.expected() + 2*time.Minute }

// client speaks exactly one version of HTTP with the named host: no proxy, no
// redirects. Each key has connections of its own: a server that mixes up the
// keys of one connection breaks the rules about that and no others.
func (s *Session) client(r request) *http.Client {
	name := "shared"
	if !r.shared {
		name = fmt.Sprint(r.http2, strings.Join(r.lines[:min(1, len(r.lines))], ""))
	}
	if c, ok := s.clients.Load(name); ok {
		return c.(*http.Client)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!r.http2)
	protocols.SetHTTP2(r.http2)
	protocols.SetUnencryptedHTTP2(r.http2)
	c := &http.Client{
		Transport: &http.Transport{
			Protocols:           protocols,
			TLSClientConfig:     &tls.Config{RootCAs: s.target.RootCAs},
			DialContext:         s.dialer(),
			DisableCompression:  true,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     3 * time.Second, // below the 5 s of Node
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	first, _ := s.clients.LoadOrStore(name, c)
	return first.(*http.Client)
}

// Plan says what will be done.
func (s *Session) Plan() string {
	var b strings.Builder
	creates := ""
	if s.creates > 0 {
		creates = fmt.Sprintf(" and creates in %v", s.creates.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "Checking %s, which answers in %v%s. It takes some %v, and at most %v.\n",
		s.target.URL, s.latency.Round(time.Millisecond), creates, s.expected(), s.Budget())
	switch {
	case s.limit.found:
		fmt.Fprintf(&b, "It has a rate limit: some %d requests at once, then some %d in %v.\n",
			s.limit.capacity, s.limit.units, s.limit.wait.Round(time.Millisecond))
		if s.limitWaits() > s.expected()/2 && s.limit.wait/time.Duration(s.limit.units) > time.Second/10 {
			b.WriteString("Most of the time the check waits for it: lend the keys a higher one, such as 40 a second.\n")
		}
	case s.limit.capacity > 0:
		fmt.Fprintf(&b, "No rate limit was reached within %d requests%s.\n", s.limit.capacity, s.limit.slow)
	}
	for i, c := range s.target.Creates {
		how := "Duplicates cannot be seen: no route lists them."
		if c.List != "" {
			how = "GET " + c.List + " shows them."
			if i == 0 && s.effects.counted {
				how = "GET " + c.List + " is counted, so nobody else may create now; {{random}} in the body is safer."
			}
		}
		fmt.Fprintf(&b, "POST %s creates resources that are not removed. %s\n", c.Path, how)
	}
	return s.redact.text(b.String())
}

// seen is what all responses together show.
type seen struct {
	ids      map[string]request
	repeated []fault
	without  []fault             // responses without exactly one request id
	secrets  []fault             // responses with a key in them
	parts    []fault             // responses with most of a key in them, and to TRACE
	refused  []fault             // live keys that were answered 401
	foreign  []fault             // responses that show what their key may not see
	makers   map[string][]string // names of the keys that sent a marker, by marker
	bare     []fault             // 429 without Retry-After
	waits    []fault             // 429 without a wait that a client can keep
	again    []fault             // creates that were answered 429 after their wait
}

// fault is a response that breaks a rule, whoever asked for it.
type fault struct {
	answer answer
	what   string
}

// note looks at what every response has to have.
func (s *Session) note(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := a.header.Values(s.target.RequestIDHeader)
	full := a
	a = a.short() // thousands of faults may be kept
	one := len(ids) == 1 && strings.TrimSpace(ids[0]) != ""
	if !one && !a.to.odd() {
		s.seen.without = append(s.seen.without, fault{a, fmt.Sprintf("%s is %q", s.target.RequestIDHeader, ids)})
	} else if one && a.to.header(s.target.RequestIDHeader)+a.to.header("X-Request-Id") == "" {
		id := ids[0]
		// A stored response may keep the id of the first one, and a server may
		// take the id of the client.
		key := a.to.header("Idempotency-Key")
		if first, again := s.seen.ids[id]; again && (key == "" || key != first.header("Idempotency-Key")) {
			what := fmt.Sprintf("the id %q came before, for %s %s", id, first.method, first.path)
			s.seen.repeated = append(s.seen.repeated, fault{a, what})
		}
		s.seen.ids[id] = a.to
	}
	if a.status == http.StatusTooManyRequests {
		_, err := retryAfter(full.header)
		if errors.Is(err, errNoWait) {
			s.seen.bare = append(s.seen.bare, fault{a, err.Error()})
		} else if err != nil {
			s.seen.waits = append(s.seen.waits, fault{a, err.Error()})
		}
	}
	name, one := s.keyName(a.to)
	// A proxy leaves out what Connection names.
	hop := strings.Contains(a.to.header("Connection"), "Authorization")
	if a.status == http.StatusUnauthorized && one && name != "" && name != "revoked" && !hop {
		s.seen.refused = append(s.seen.refused, fault{a, "the key " + name + " was answered 401"})
	}
	if s.showsForeign(full, name) {
		s.seen.foreign = append(s.seen.foreign, fault{a, fmt.Sprintf("with the key %q", name)})
	}
	if s.redact.holds(a.to.path) {
		return // the client itself put the key into the URL, which may come back
	}
	texts := map[string]string{"the body": full.body}
	for name, values := range full.header {
		texts["the header "+name] = name + " " + strings.Join(values, " ")
	}
	for what, text := range texts {
		if s.redact.whole(text) && a.to.method != http.MethodTrace {
			s.seen.secrets = append(s.seen.secrets, fault{a, what})
		} else if s.redact.holds(text) {
			s.seen.parts = append(s.seen.parts, fault{a, what})
		}
	}
}

// keyName returns the name of the key of a request, "" for none, and whether there
// is one Authorization and no other.
func (s *Session) keyName(r request) (name string, one bool) {
	lines := 0
	for _, line := range r.lines {
		if header, _, _ := strings.Cut(line, ":"); !strings.EqualFold(header, "Authorization") {
			continue
		}
		lines++
		for n, key := range s.target.Keys {
			if key != "" && line == bearer(key) {
				name = n
			}
		}
	}
	return name, lines == 1
}

// noteOwn notes a response to a request that was not sent whole, when the
// program wrote it. Servers answer some of these themselves, as they answer
// what they cannot read, and leave out the Date then.
func (s *Session) noteOwn(a answer) {
	if a.status >= 200 && a.header.Get("Date") != "" {
		s.note(a)
	}
}

// report ends the check with the first of the faults and how many there are.
func (p *probe) report(seen *[]fault, what string) {
	p.mu.Lock()
	faults := *seen
	p.mu.Unlock()
	if len(faults) == 0 {
		return
	}
	statuses := make(map[int]int)
	for _, f := range faults {
		statuses[f.answer.status]++
	}
	var counts []string
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		counts = append(counts, fmt.Sprintf("%d × %d", statuses[status], status))
	}
	first := slices.MinFunc(faults, func(a, b fault) int {
		return cmp.Compare(len(a.answer.to.lines), len(b.answer.to.lines))
	})
	p.fault(first.answer, "%s: %s (%s)", what, first.what, strings.Join(counts, ", "))
}
