package ratelimitredis

import (
	"math/bits"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// ahead holds units that this process has taken for decisions to come; nil takes
// none. A hand belongs to one list of charges, known by its listKey, and counts in whole
// decisions: each of them spends the cost of every charge of the list.
//
// Why no window W admits more than burst + floor((W+horizon)/interval):
//
//   - A unit is in a hand only after Redis has charged it, at a time c.
//   - The trip that brought it began at a time before <= c. It is spent before
//     before + horizon, so it is spent at a time in [c, c+horizon).
//   - Units that are spent within W were therefore charged within a window of
//     W + horizon, in which Redis charges no more than that.
//   - Nothing is given back. Units that are left lapse.
//
// Limits are a part of the key. Under a changed limit the list has another
// hand, and what is left in the old one lapses.
type ahead struct {
	horizon int64     // nanoseconds, as all times here
	start   time.Time // a horizon ago, so that an empty place was not used for one
	sets    [aheadSets]handSet
}

const (
	aheadSets = 1 << 10
	aheadWays = 8
	// A decision that is admitted adds 1 to the credit of its list, one whose
	// units lapsed takes 8, and units are taken ahead while there is credit. So
	// of nine units that are charged one lapses at most in the long run,
	// whatever the pattern of the requests. The limits of the credit are for
	// lists with thousands of decisions a second, which would be slow for
	// minutes after one stop of the machine.
	price     = 8
	maxCredit = 10_000
)

// handSet has the hands of the keys that fall into it. A new key replaces one
// that was not used for a horizon. If there is none, it gets no hand and one
// unit a trip. So memory is bounded, and no units in hand are thrown away.
type handSet struct {
	mu    sync.Mutex
	keys  [aheadWays]uint64 // 0 is an empty place
	hands [aheadWays]hand
}

// hand is the state of one list of charges in this process.
type hand struct {
	lots   [2]lot // spent in this order
	answer shown  // the latest
	used   int64  // when the latest decision was admitted
	credit int64  // below 0 there is no next lot
	more   int64  // for how many decisions beyond its own the next trip is to charge
	asked  int64  // before this, a trip for a lot may be under way
	// How many decisions were admitted since window, and in the half horizon
	// before it.
	window, count, last int64
}

// lot is what one trip brought.
type lot struct {
	left   int64 // decisions
	lapses int64 // when they may not be spent any more
}

// shown is what clients are told of the buckets.
type shown struct {
	left  int64 // decisions in hand; set when it is shown
	at    int64 // when the answer of Redis was here
	debts [ratelimit.MaxCharges]time.Duration
}

func newAhead(horizon time.Duration) *ahead {
	return &ahead{horizon: int64(horizon), start: time.Now().Add(-horizon)}
}

// now is monotonic. If a suspended machine stops it, units in hand live longer
// by that time.
func (a *ahead) now() int64 { return int64(time.Since(a.start)) }

// spend decides charges from units in hand. If it does not, a trip must.
func (a *ahead) spend(key uint64, charges []ratelimit.Charge) (ratelimit.Decision, bool) {
	if a == nil {
		return ratelimit.Decision{}, false
	}
	s := a.set(key)
	s.mu.Lock()
	// Within the lock: a time that was read before it could be earlier than a
	// trip that has ended since.
	now := a.now()
	h := s.find(key)
	if h == nil || !h.spend(now, a.horizon) {
		s.mu.Unlock()
		return ratelimit.Decision{}, false
	}
	answer := h.answer
	answer.left = h.left()
	s.mu.Unlock()
	return ratelimit.Decide(charges, answer.states(charges, now)), true
}

// ask is called right before a trip. It returns for how many decisions the trip
// is to charge, and the time.
func (a *ahead) ask(key uint64) (amount, before int64) {
	if a == nil {
		return 1, 0
	}
	s := a.set(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	amount, before = 1, a.now()
	if h := s.find(key); h != nil {
		amount, h.more = 1+h.more, 0
	}
	return amount, before
}

// keep takes in the answer to a trip that charged for amount decisions, one of
// which is the caller's; 0 is a denial. It returns what to show for that one.
func (a *ahead) keep(key uint64, amount, before int64, debts [ratelimit.MaxCharges]time.Duration) shown {
	if a == nil {
		return shown{debts: debts}
	}
	s := a.set(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := a.now()
	answer := shown{at: now, debts: debts}
	h := s.find(key)
	if h == nil {
		h = s.place(key, now, a.horizon) // of a denial, it is free for the next list
	}
	if h == nil {
		return answer
	}
	h.lapse(now)
	h.answer = answer
	if amount > 0 {
		h.tally(now, a.horizon)
	}
	if amount > 1 {
		// There is no second lot as a rule, because spend looks for it. It would
		// go, which is safe.
		h.lots[1], h.asked = lot{amount - 1, before + a.horizon}, 0
	}
	answer.left = h.left()
	return answer
}

func (a *ahead) set(key uint64) *handSet {
	i, _ := bits.Mul64(key, aheadSets)
	return &a.sets[i]
}

// find returns nil if the key has no hand.
func (s *handSet) find(key uint64) *hand {
	for i, k := range s.keys {
		if k == key {
			return &s.hands[i]
		}
	}
	return nil
}

// place returns a new hand, or nil if there is no room for one.
func (s *handSet) place(key uint64, now, horizon int64) *hand {
	var oldest int
	for i := range s.hands {
		if s.hands[i].used < s.hands[oldest].used {
			oldest = i
		}
	}
	h := &s.hands[oldest]
	if now-h.used < horizon {
		return nil
	}
	s.keys[oldest], *h = key, hand{window: now}
	return h
}

// spend takes the units of one decision. When they run low it sends its caller
// for more, and the others spend the rest meanwhile.
func (h *hand) spend(now, horizon int64) bool {
	h.lapse(now)
	h.roll(now, horizon/2)
	low := h.left() <= h.last/2 && h.lots[1].left == 0
	if low && h.last > 1 && h.credit >= 0 && now >= h.asked {
		// A trip that fails or hangs holds up the next one for a horizon, after
		// which its units could not be spent anyway.
		h.more, h.asked = h.last-1, now+horizon
		return false
	}
	if h.lots[0].left == 0 {
		return false
	}
	h.lots[0].left--
	h.tally(now, horizon)
	return true
}

func (h *hand) left() int64 { return h.lots[0].left + h.lots[1].left }

func (h *hand) lapse(now int64) {
	for i := range h.lots {
		if l := &h.lots[i]; now >= l.lapses {
			h.credit = max(h.credit-price*l.left, -maxCredit)
			l.left = 0
		}
	}
	if h.lots[0].left == 0 {
		h.lots[0], h.lots[1] = h.lots[1], lot{}
	}
}

// tally counts a decision that was admitted.
func (h *hand) tally(now, horizon int64) {
	h.roll(now, horizon/2)
	h.count++
	h.used = now
	h.credit = min(h.credit+1, maxCredit)
}

// roll begins a new window when half a horizon has passed.
func (h *hand) roll(now, half int64) {
	switch passed := now - h.window; {
	case passed < half:
		return
	case passed < 2*half:
		h.last, h.window = h.count, h.window+half
	default:
		h.last, h.window = 0, now
	}
	h.count = 0
}

// states are those of the buckets now. Units in hand are not spent yet, so they
// count as left. What others have taken since the answer is not known here.
func (s *shown) states(charges []ratelimit.Charge, now int64) (states [ratelimit.MaxCharges]ratelimit.State) {
	for i := range charges {
		p := paceOf(&charges[i])
		states[i] = p.state(s.debts[i] - time.Duration(now-s.at))
		states[i].Remaining = min(states[i].Remaining+s.left*charges[i].Cost, p.burst)
	}
	return states
}
