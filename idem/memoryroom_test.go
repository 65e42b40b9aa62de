package idem_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// However much one tenant does, and however fast, another that holds less keeps
// everything and is not refused.
func TestMemoryFloodTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{Budget: 1_000_000})
		s.fill("modest", 50, 500)
		for i := range 10_000 {
			time.Sleep(300 * time.Millisecond)
			s.put("flood", fmt.Sprint(i), i%3000)
		}
		s.mustHold("modest", strings.Repeat("W", 50))
		held := s.claim("flood", "held")
		s.flood("flood") // until all that it holds is young
		for i := range 50 {
			s.put("modest", fmt.Sprint(50+i), 500)
			s.mustBeFull("flood", "more")
		}
		s.settle(held, 10, 1024)
		if r, err := s.Begin(t.Context(), claimOf("flood", "held")); err != nil || len(r.Payload) != 1024 {
			t.Errorf("got %v, %d bytes, error %v, want the summary of the flood's last answer", r.State, len(r.Payload), err)
		}
		s.mustHold("modest", strings.Repeat("W", 100))
	})
}

// Two tenants that do the same hold the same, also if one has filled the store
// before the other comes.
func TestMemoryTenantsShare(t *testing.T) {
	for _, early := range []int{0, 5000} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t, &idem.Memory{Budget: 1_000_000, MinRetention: time.Second})
			n := early
			for i := range early {
				time.Sleep(10 * time.Millisecond)
				s.put("a", fmt.Sprint(i), 0)
			}
			for ; n < early+5000; n++ {
				time.Sleep(10 * time.Millisecond)
				s.put("a", fmt.Sprint(n), 0)
				s.put("b", fmt.Sprint(n), 0)
			}
			a, b := strings.Count(s.holds("a", n), "W"), strings.Count(s.holds("b", n), "W")
			if a < 1000 || b < 1000 || a-b > 10 || b-a > 10 {
				t.Errorf("got %d records of one and %d of the other, want as many", a, b)
			}
		})
	}
}

// model is what a Memory should be, in the order in which keys were settled and
// without a thought for speed.
type model struct {
	budget   int64
	young    time.Duration
	start    time.Time
	entries  []*modelEntry
	forgot   uint64
	shortens int
	tie      bool // two tenants held most: either may have made room
}

type modelEntry struct {
	claim            idem.Claim
	attempt          int
	held             bool
	leaseEnds        time.Duration
	settled, expires time.Duration
	outcome          idem.Outcome
	payload, summary []byte
	whole            bool
	cost             int64
}

func (m *model) now() time.Duration { return time.Since(m.start) }

func (m *model) find(k idem.Key) *modelEntry {
	for _, e := range m.entries {
		if e.claim.Key == k {
			if e.expires > m.now() {
				return e
			}
			m.drop(e)
		}
	}
	return nil
}

// held returns the claims in progress.
func (m *model) held() []*modelEntry {
	return slices.DeleteFunc(slices.Clone(m.entries), func(e *modelEntry) bool { return !e.held })
}

func (m *model) drop(e *modelEntry) {
	m.entries = slices.DeleteFunc(m.entries, func(o *modelEntry) bool { return o == e })
}

// of returns the bytes of a tenant, or of all for "".
func (m *model) of(tenant string) (n int64) {
	tenants := map[string]bool{}
	for _, e := range m.entries {
		if tenant == "" || e.claim.Tenant == tenant {
			tenants[e.claim.Tenant] = true
			n += e.cost
		}
	}
	return n + int64(len(tenants))*tenantCost
}

func (m *model) dropExpired() bool {
	if len(m.entries) == 0 {
		return false
	}
	first := slices.MinFunc(m.entries, func(a, b *modelEntry) int { return cmp.Compare(a.expires, b.expires) })
	if first.expires > m.now() {
		return false
	}
	m.drop(first)
	return true
}

// next returns the body or the record of a tenant that goes first.
func (m *model) next(tenant string) (body, record *modelEntry) {
	var bodies int64
	for _, e := range slices.Backward(m.entries) {
		if e.held || e.claim.Tenant != tenant {
			continue
		}
		if len(e.payload) > 0 {
			body = e
			bodies += int64(len(e.payload))
		}
		if e.settled <= m.now()-m.young {
			record = e
		}
	}
	if body != nil && (record == nil || body.settled <= m.now()-m.young || bodies > m.of(tenant)/2) {
		return body, nil
	}
	return nil, record
}

func (m *model) makeRoom(tenant string) bool {
	for m.of("") > m.budget-m.of(tenant)/16 {
		if m.dropExpired() {
			continue
		}
		most := tenant
		for _, e := range m.entries {
			o := e.claim.Tenant
			if b, r := m.next(o); b == nil && r == nil || m.of(o) < m.of(most) || o == most {
				continue
			} else if m.of(o) > m.of(most) {
				most = o
			} else {
				m.tie = m.tie || most != tenant
			}
		}
		body, record := m.next(most)
		switch {
		case body != nil:
			body.cost -= int64(len(body.payload))
			body.payload, body.whole = nil, false
			m.shortens++
		case record != nil:
			m.drop(record)
			m.forgot++
		default:
			return false
		}
	}
	return true
}

func (m *model) begin(c idem.Claim) (idem.Record, error) {
	m.dropExpired()
	m.dropExpired()
	e := m.find(c.Key)
	switch {
	case e == nil:
		e = &modelEntry{claim: c, held: true, expires: 1 << 62, cost: claimCost}
		m.entries = append(m.entries, e)
		if !m.makeRoom(c.Tenant) {
			m.drop(e)
			return idem.Record{}, idem.ErrFull
		}
	case e.held && m.now() < e.leaseEnds:
		return idem.Record{State: idem.InProgress}, nil
	case !e.held && e.outcome == idem.OutcomeDone:
		if e.whole {
			return idem.Record{State: idem.Done, Payload: e.payload, Retained: true}, nil
		}
		return idem.Record{State: idem.Done, Payload: e.summary}, nil
	case !c.Reexecute:
		return idem.Record{State: idem.Unknown}, nil
	case !e.held:
		m.drop(e)
		m.entries = append(m.entries, e) // the newest
		e.held, e.cost = true, claimCost
		if !m.makeRoom(e.claim.Tenant) {
			e.held, e.cost, e.settled = false, entryCost, m.now()
			return idem.Record{}, idem.ErrFull
		}
	}
	e.held, e.claim.Token = true, c.Token
	e.attempt++
	e.leaseEnds, e.expires = m.now()+c.Lease, m.now()+c.Retention
	return idem.Record{State: idem.Claimed}, nil
}

func (m *model) settle(e *modelEntry, s idem.Settlement) {
	m.drop(e)
	if s.Outcome == idem.OutcomeFree && e.attempt == 1 {
		return
	} else if s.Outcome == idem.OutcomeFree {
		s.Outcome = idem.OutcomeUnknown
	}
	e.held, e.outcome, e.settled, e.expires = false, s.Outcome, m.now(), m.now()+s.Retention
	e.payload, e.summary, e.whole = s.Payload, s.Summary, int64(len(s.Payload)) <= m.budget/2
	if !e.whole {
		e.payload = nil
	}
	e.cost = entryCost + int64(len(e.payload)+len(e.summary))
	m.entries = append(m.entries, e)
	if !m.makeRoom(e.claim.Tenant) && e.cost > claimCost {
		e.cost, e.summary = entryCost, nil
	}
}

// Random work: a Memory does what the model does, step by step.
func TestMemoryIsItsModel(t *testing.T) {
	var full, forgot, shortens int
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			m := modelWork(t, rand.New(rand.NewPCG(seed, 1)), &full)
			forgot += int(m.forgot)
			shortens += m.shortens
		})
	}
	if full < 100 || forgot < 100 || shortens < 100 {
		t.Errorf("%d refused, %d forgotten, %d shortened: want pressure in this test", full, forgot, shortens)
	}
}

func modelWork(t *testing.T, random *rand.Rand, full *int) *model {
	m := &model{budget: 20_000 + random.Int64N(60_000), young: time.Minute, start: time.Now()}
	s := newShop(t, &idem.Memory{Budget: m.budget})
	bodies, pause := 1+random.IntN(3000), 1+random.Int64N(int64(4*time.Second))
	for step := range 600 {
		time.Sleep(time.Duration(random.Int64N(pause)))
		// The tenant 0 does most, 5 least.
		c := claimOf(fmt.Sprint(random.IntN(1+random.IntN(6))), fmt.Sprint(random.IntN(1000)))
		c.Lease = time.Duration(1 + random.Int64N(int64(time.Minute)))
		c.Retention = c.Lease + time.Duration(random.Int64N(int64(10*time.Minute)))
		c.Reexecute = random.IntN(3) == 0
		if len(m.entries) > 0 && random.IntN(3) == 0 { // a repeat
			known := m.entries[random.IntN(len(m.entries))].claim
			c.Key, c.Tenant = known.Key, known.Tenant
		}
		got, err := s.Begin(t.Context(), c)
		want, wantErr := m.begin(c)
		if m.tie {
			return m
		}
		if err != wantErr || got.State != want.State || got.Retained != want.Retained ||
			!bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("step %d: got %v, %v, retained %t, %d bytes; want %v, %v, %t, %d", step,
				got.State, err, got.Retained, len(got.Payload), want.State, wantErr, want.Retained, len(want.Payload))
		}
		if errors.Is(err, idem.ErrFull) {
			*full++
		}
		if held := m.held(); len(held) > 0 && random.IntN(8) > 0 {
			e := held[random.IntN(len(held))]
			if e.expires <= m.now() {
				continue
			}
			settlement := idem.Settlement{
				Outcome: idem.OutcomeDone, Payload: bytes.Repeat([]byte{byte(step)}, random.IntN(bodies)),
				Summary:   bytes.Repeat([]byte{byte(step)}, random.IntN(300)),
				Retention: time.Duration(1 + random.Int64N(int64(10*time.Minute))),
			}
			switch random.IntN(20) {
			case 0:
				settlement = idem.Settlement{Outcome: idem.OutcomeFree, Retention: settlement.Retention}
			case 1, 2:
				settlement = idem.Settlement{Outcome: idem.OutcomeUnknown, Retention: settlement.Retention}
			case 3:
				settlement.Payload = make([]byte, m.budget/2+random.Int64N(3)-1)
			case 4:
				settlement.Summary = make([]byte, 1020+random.IntN(1000))
			}
			if err := s.Settle(t.Context(), e.claim.Key, e.claim.Token, settlement); err != nil {
				t.Fatalf("step %d: Settle: got error %v", step, err)
			}
			m.settle(e, settlement)
		}
		if m.tie {
			return m
		}
		stats := s.Stats()
		if stats.Bytes != m.of("") || stats.Bytes > m.budget || stats.Forgotten != m.forgot || stats.Keys != len(m.entries) {
			t.Fatalf("step %d: got %+v, want %d bytes of %d, %d forgotten, %d keys",
				step, stats, m.of(""), m.budget, m.forgot, len(m.entries))
		}
	}
	return m
}
