package idem_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

func TestMemorySuite(t *testing.T) {
	idemtest.Suite{New: func(t *testing.T) idem.Store { return newMemory() }, Bubble: true}.Run(t)
}

// What a Memory charges for a key, for a claim in progress, and for a tenant.
const (
	entryCost  = 300
	claimCost  = entryCost + 1024
	tenantCost = 192
	summary    = 100 // bytes, of what put settles
)

// shop is a Memory with shorthands. A key is a tenant and a name.
type shop struct {
	*idem.Memory
	t *testing.T
}

var tokens atomic.Uint64

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	binary.BigEndian.PutUint64(t[:], tokens.Add(1))
	return t
}

func newShop(t *testing.T, m *idem.Memory) shop {
	m.Logger = cmp.Or(m.Logger, quiet)
	return shop{m, t}
}

func claimOf(tenant, name string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey(tenant, name), Token: newToken(), Tenant: tenant, Fingerprint: [32]byte{1},
		Lease: time.Minute, Retention: time.Hour,
	}
}

// claim claims a new key.
func (s shop) claim(tenant, name string) idem.Claim {
	s.t.Helper()
	return s.claimFor(tenant, name, time.Hour)
}

func (s shop) claimFor(tenant, name string, retention time.Duration) idem.Claim {
	s.t.Helper()
	c := claimOf(tenant, name)
	c.Retention = retention
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin of %s %s: got %v, error %v, want claimed", tenant, name, r.State, err)
	}
	return c
}

func (s shop) settle(c idem.Claim, payload, summary int) {
	s.t.Helper()
	settlement := idem.Settlement{
		Outcome: idem.OutcomeDone, Payload: make([]byte, payload), Summary: make([]byte, summary), Retention: c.Retention,
	}
	if err := s.Settle(s.t.Context(), c.Key, c.Token, settlement); err != nil {
		s.t.Fatalf("Settle: got error %v, want nil: settling what is held always succeeds", err)
	}
}

// put claims a key and settles it.
func (s shop) put(tenant, name string, payload int) {
	s.t.Helper()
	s.settle(s.claim(tenant, name), payload, summary)
}

// fill puts keys, from "0" on.
func (s shop) fill(tenant string, n, payload int) {
	s.t.Helper()
	for i := range n {
		s.put(tenant, fmt.Sprint(i), payload)
	}
}

func (s shop) mustBeFull(tenant, name string) {
	s.t.Helper()
	if _, err := s.Begin(s.t.Context(), claimOf(tenant, name)); err != idem.ErrFull {
		s.t.Fatalf("Begin of %s %s: got error %v, want ErrFull", tenant, name, err)
	}
}

// flood puts keys of a tenant until it is refused.
func (s shop) flood(tenant string) (n int) {
	s.t.Helper()
	for ; ; n++ {
		c := claimOf(tenant, fmt.Sprint(n))
		if _, err := s.Begin(s.t.Context(), c); err == idem.ErrFull {
			return n
		}
		s.settle(c, 0, summary)
	}
}

// holds says what is known of a tenant's keys, from "0" on: W is a whole
// answer, s a summary, and a dot stands for one that is forgotten. It claims
// none.
func (s shop) holds(tenant string, n int) string {
	s.t.Helper()
	known := make([]byte, n)
	for i := n - 1; i >= 0; i-- { // a claim of what is forgotten may make others go
		c := claimOf(tenant, fmt.Sprint(i))
		r, err := s.Begin(s.t.Context(), c)
		switch {
		case err != nil || r.State == idem.Claimed:
			known[i] = '.'
			_ = s.Settle(s.t.Context(), c.Key, c.Token, freed)
		case r.State == idem.Done && r.Retained:
			known[i] = 'W'
		case r.State == idem.Done && len(r.Payload) == summary:
			known[i] = 's'
		default:
			known[i] = '?'
		}
	}
	return string(known)
}

func (s shop) mustHold(tenant, want string) {
	s.t.Helper()
	if got := s.holds(tenant, len(want)); got != want {
		s.t.Errorf("of %s: got %s, want %s", tenant, got, want)
	}
}

func (s shop) settleAs(c idem.Claim, o idem.Outcome) {
	s.t.Helper()
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin: got %v, error %v, want claimed", r.State, err)
	}
	if err := s.Settle(s.t.Context(), c.Key, c.Token, idem.Settlement{Outcome: o, Retention: time.Hour}); err != nil {
		s.t.Fatal(err)
	}
}

// Calls that no Runner makes are errors and no refusals; the shortest times are
// accepted.
func TestMemoryRefusesNonsense(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	held := s.claim("a", "key")
	begin := func(lease, retention time.Duration) error {
		c := claimOf("a", fmt.Sprint(lease, retention))
		c.Lease, c.Retention = lease, retention
		_, err := s.Begin(t.Context(), c)
		return err
	}
	extend := func(lease time.Duration) error { return s.Extend(t.Context(), held.Key, held.Token, lease) }
	settle := func(o idem.Outcome, retention time.Duration) error {
		return s.Settle(t.Context(), held.Key, held.Token, idem.Settlement{Outcome: o, Retention: retention})
	}
	for i, err := range []error{
		begin(0, 1), begin(-1, 1), begin(2, 1), begin(1, 0), extend(0),
		settle(3, 1), settle(idem.OutcomeDone, 0), settle(idem.OutcomeUnknown, 0), settle(idem.OutcomeFree, 0),
	} {
		if err == nil || errors.Is(err, idem.ErrLost) {
			t.Errorf("call %d: got error %v, want one that is no refusal", i, err)
		}
	}
	if err := errors.Join(begin(1, 1), extend(1), settle(idem.OutcomeUnknown, 1)); err != nil {
		t.Errorf("for 1ns: got error %v", err)
	}
}

func TestMemoryOptions(t *testing.T) {
	// What can be seen of a Memory that is full for two minutes.
	seen := func(set func(*idem.Memory)) (s string) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			m := newShop(t, &idem.Memory{Budget: 10_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			set(m.Memory)
			first := m.flood("a")
			time.Sleep(2 * time.Minute)
			_, err := m.Begin(t.Context(), claimOf("a", "more"))
			s = fmt.Sprint(first, err, strings.Count(log.String(), "WARN"))
		})
		return s
	}
	optiontest.Every(t, seen, map[string]func(*idem.Memory){
		"Budget":       func(m *idem.Memory) { m.Budget = 20_000 },
		"MinRetention": func(m *idem.Memory) { m.MinRetention = time.Hour },
		"Logger":       func(m *idem.Memory) { m.Logger = quiet },
	})
	if _, err := (&idem.Memory{Budget: -1}).Begin(t.Context(), claimOf("a", "first")); err != nil {
		t.Errorf("a negative Budget: got error %v, want the default", err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, full := &idem.Memory{Budget: 10_000, MinRetention: -1}, false
		for n := range 100 {
			c := claimOf("a", fmt.Sprint(n))
			_, err := m.Begin(t.Context(), c)
			full = full || err == idem.ErrFull
			_ = m.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Retention: time.Hour})
		}
		if !full {
			t.Error("a negative MinRetention: records of this moment are forgotten, want the default")
		}
	})
}

// A settlement that is sent again after the body went is compared by summary.
func TestMemorySettlesAgainWhatItShortened(t *testing.T) {
	s := newShop(t, &idem.Memory{Budget: 20_000})
	c := s.claim("a", "0")
	settlement := idem.Settlement{
		Outcome: idem.OutcomeDone, Payload: make([]byte, 8000), Summary: make([]byte, summary), Retention: time.Hour,
	}
	for _, held := range []string{"W", "s"} {
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Errorf("Settle: got error %v", err)
		}
		if held == "W" {
			s.put("a", "1", 9000)
			s.put("a", "2", 9000)
		}
	}
	s.mustHold("a", "s")
	settlement.Summary = []byte("other")
	if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != idem.ErrSettled {
		t.Errorf("Settle with another summary: got error %v, want ErrSettled", err)
	}
}

// Two tenants of one organization have an account each, and are erased
// together.
func TestMemoryTenantsOfOneOrganization(t *testing.T) {
	s := newShop(t, &idem.Memory{Budget: 100_000, MinRetention: 1})
	put := func(tenant string, n int) {
		c := claimOf(tenant, fmt.Sprint(n))
		c.Organization = "acme"
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		s.settle(c, 0, summary)
	}
	put("acme production", 0)
	for n := range 1000 {
		put("acme sandbox", n)
	}
	s.fill("other", 3, 0)
	s.mustHold("acme production", "W")
	keys := s.Stats().Keys
	for _, want := range []int{keys - 3, 0} {
		if n, err := s.Erase(t.Context(), "acme"); n != want || err != nil {
			t.Errorf("Erase: got %d, %v, want %d", n, err, want)
		}
	}
	s.mustHold("other", "WWW")
}

// One warning an hour says how long records are kept, and what budget would
// keep them for their retention.
func TestMemoryWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newShop(t, &idem.Memory{Budget: 50_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.flood("a")
		time.Sleep(6 * time.Minute)
		for hour := range 3 {
			if n := strings.Count(log.String(), "WARN"); n != hour { // one in each hour before
				t.Fatalf("hour %d: got %d warnings:\n%s", hour, n, &log)
			}
			for i := range 200 {
				s.put("a", fmt.Sprint(hour, " ", i), 0)
				time.Sleep(18 * time.Second)
			}
		}
		first, _, _ := strings.Cut(log.String(), "\n")
		if !strings.HasSuffix(first, "kept=6m0s retention=1h0m0s budget=50000 budget_needed=500000") {
			t.Errorf("got %s", first)
		}
		if got := s.Stats(); got.Forgotten == 0 || got.Kept < time.Minute || got.Kept > time.Hour {
			t.Errorf("got %+v", got)
		}
	})
}

type panickingLog struct{ slog.Handler }

func (panickingLog) Handle(context.Context, slog.Record) error { panic("the log is full") }

// When the Logger panics, the claim that led to the warning is not lost.
func TestMemoryWarnsALogThatPanics(t *testing.T) {
	logger := slog.New(panickingLog{slog.NewTextHandler(io.Discard, nil)})
	s := newShop(t, &idem.Memory{Budget: 10_000, MinRetention: 1, Logger: logger})
	s.fill("a", 100, 0) // which settles each claim that it makes
	if got := s.Stats(); got.Forgotten == 0 {
		t.Errorf("got %+v, want records forgotten", got)
	}
}

func TestMemoryNeverForgetsWithEndlessRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{})
		time.Sleep(time.Hour)
		c := claimOf("a", "key")
		c.Lease, c.Retention = math.MaxInt64, math.MaxInt64
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10_000 * time.Hour)
		r, err := s.Begin(t.Context(), claimOf("a", "key"))
		if err != nil || r.State != idem.InProgress || r.RetryAfter != 0 {
			t.Errorf("got %v for %v, error %v, want in progress", r.State, r.RetryAfter, err)
		}
		settlement := idem.Settlement{Outcome: idem.OutcomeDone, Retention: math.MaxInt64}
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10_000 * time.Hour)
		if r, err := s.Begin(t.Context(), claimOf("a", "key")); err != nil || r.State != idem.Done {
			t.Errorf("got %v, error %v, want done", r.State, err)
		}
	})
}
