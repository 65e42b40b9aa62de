package idem_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// counted is the model of a store, and a Memory that gets the same calls. The
// Memory must answer the same, and charge what the records of the model say.
type counted struct {
	*sharedStore
	memory  idem.Memory
	before  map[idem.Account]int64 // was used in other schedules
	erased  []idem.Charge
	differs string // the call that the Memory answered in another way
}

// counteds have served other schedules and are empty: a new Memory takes 32 KiB.
var counteds = sync.Pool{New: func() any {
	return &counted{sharedStore: newSharedStore(), before: make(map[idem.Account]int64)}
}}

// Each claim is of claimUnits. A handler adds to them the number of its answer, so
// that each answer has a sum of its own.
const (
	claimUnits = 100
	lostUnits  = 50 // added before a panic
)

func unitsOf(text string) int64 {
	n, _ := strconv.Atoi(strings.TrimPrefix(text, "answer "))
	return claimUnits + int64(n)
}

func (c *counted) must(same bool, call string) {
	if !same {
		c.differs = cmp.Or(c.differs, call)
	}
}

func (c *counted) Begin(ctx context.Context, claim idem.Claim) (idem.Record, error) {
	a, err := c.sharedStore.Begin(ctx, claim)
	b, other := c.memory.Begin(ctx, claim)
	c.must(err == other && a.State == b.State && a.Attempt == b.Attempt && a.Fingerprint == b.Fingerprint &&
		a.RetryAfter == b.RetryAfter && a.Retained == b.Retained && string(a.Payload) == string(b.Payload), "Begin")
	return a, err
}

func (c *counted) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	err := c.sharedStore.Extend(ctx, key, token, lease)
	c.must(err == c.memory.Extend(ctx, key, token, lease), "Extend")
	return err
}

func (c *counted) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, s idem.Settlement) error {
	err := c.sharedStore.Settle(ctx, key, token, s)
	c.must(err == c.memory.Settle(ctx, key, token, s), "Settle")
	return err
}

// erase is that of an idem.Eraser: what was charged stays, if it is certain.
func (c *counted) erase() {
	c.erased = slices.DeleteFunc(c.charges(), func(c idem.Charge) bool { return c.Uncertain })
	clear(c.records)
	c.memory.Erase(context.Background(), request.Tenant)
	c.must(c.memory.Stats().Bytes == 0, "Bytes after Erase")
}

// charge is what the record is charged for, in the words of idem.Counter.
func (r *sharedRecord) charge() idem.Charge {
	c := idem.Charge{Account: r.claim.Account, Began: r.began.Round(0).UTC()}
	switch {
	case r.settled != nil:
		c.Units, c.Uncertain = r.settled.Units, r.settled.Outcome == idem.OutcomeUnknown
	case !time.Now().Before(r.lapses):
		c.Units, c.Uncertain = r.claim.Units, true
	}
	return c
}

// charges returns what the model charges, by the IDs.
func (c *counted) charges() []idem.Charge {
	all := slices.Clone(c.erased)
	for _, r := range c.records {
		if charge := r.charge(); charge.Units > 0 {
			sum := sha256.Sum256(slices.Concat(r.claim.Key[:], r.claim.Token[:]))
			charge.ID = hex.EncodeToString(sum[:16])
			all = append(all, charge)
		}
	}
	return byID(all)
}

func byID(all []idem.Charge) []idem.Charge {
	for i := range all {
		all[i].Number = 0
	}
	slices.SortFunc(all, func(a, b idem.Charge) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// check compares what is used in all.
func (c *counted) check() {
	var want int64
	for _, charge := range c.erased {
		want += charge.Units
	}
	for _, r := range c.records {
		want += r.charge().Units
	}
	c.mustUse("units\x00", time.Time{}, want)
}

func (c *counted) mustUse(a idem.Account, since time.Time, want int64) {
	got, _, _ := c.memory.Used(context.Background(), a, since)
	c.must(got == c.before[a]+want, "Used")
}

// checkUnits checks what was charged in the end: once for what clients get now, and
// at most once for each time that this was erased.
func (w *world) checkUnits(last string) {
	charges, certain, used := w.store.charges(), map[int64]int{}, map[idem.Account]int64{}
	for _, c := range charges {
		if !c.Uncertain {
			certain[c.Units]++
		} else if c.Units != claimUnits && c.Units != claimUnits+lostUnits || w.joined || w.reexecute {
			w.failf("an uncertain charge of %d units", c.Units)
		}
		for _, a := range c.Account.Within() {
			used[a] += c.Units
		}
	}
	for text := range w.answers {
		if certain[unitsOf(text)] > 1 {
			w.failf("%s is charged twice", text)
		}
	}
	_, answered := w.answers[last]
	if n := len(charges); n < 1 || n > 1+w.gone || w.joined && n != w.effects ||
		answered && certain[unitsOf(last)] == 0 || last == "unknown" && len(certain) > w.gone {
		w.failf("when clients get %q, charged is %q", last, fmt.Sprint(charges))
	}
	ctx := context.Background()
	final, _ := w.store.memory.Charges(ctx, math.MaxInt)
	uncertain, _ := w.store.memory.Uncertain(ctx, math.MaxInt)
	w.store.must(slices.Equal(charges, byID(slices.Concat(final, uncertain))), "Charges and Uncertain")
	w.pass(25 * time.Hour) // All are final, and began yesterday.
	final, _ = w.store.memory.Charges(ctx, math.MaxInt)
	w.store.must(slices.Equal(charges, byID(final)), "Charges")
	for a, want := range used {
		w.store.mustUse(a, time.Time{}, want)
		today, _, _ := w.store.memory.Used(ctx, a, time.Now())
		w.store.must(today == 0, "Used since today")
	}
	if w.check(); w.wrong {
		return
	}
	for a, units := range used {
		w.store.before[a] += units
	}
	w.store.memory.Acknowledge(ctx, math.MaxInt64)
	w.store.erase()
	w.store.erased = nil
	counteds.Put(w.store)
}
