package ratelimit

import (
	"context"
	"errors"
	"fmt"
)

// A Resetter is a Store that can forget what was spent.
//
// Reset makes the bucket of each charge full, in one step for each bucket, and
// changes no other. The Cost of a charge is ignored. A process that was told of
// a denial before may repeat it until its Wait is over. It is no error that a
// bucket is full already. The errors for charges that no store accepts are those
// of Check. An error that wraps errors.ErrUnsupported says that the store behind
// a Resetter is not one.
type Resetter interface {
	Reset(ctx context.Context, charges []Charge) error
}

var (
	_ Resetter = (*Memory)(nil)
	_ Resetter = (*Failover)(nil)
	_ Resetter = limiterStore{}
)

// checkReset is Check without the costs.
func checkReset(charges []Charge) error {
	free := make([]Charge, len(charges))
	for i, c := range charges {
		free[i] = Charge{Policy: c.Policy, Bucket: c.Bucket}
	}
	return Check(free)
}

// Reset implements Resetter.
func (m *Memory) Reset(_ context.Context, charges []Charge) error {
	if err := checkReset(charges); err != nil {
		return err
	}
	for i := range charges {
		pace, _ := charges[i].Policy.Limit.pace() // checkReset found no error
		key := m.key(&charges[i], pace)
		s := &m.shards[m.index(key)]
		s.mu.Lock()
		if e := s.find(key); e != nil {
			*e = entry{}
		}
		s.mu.Unlock()
	}
	return nil
}

// Reset implements Resetter, for the store and for what was counted here. It
// calls the store even while Take does not, and with ctx alone: the budget does
// not apply.
func (f *Failover) Reset(ctx context.Context, charges []Charge) error {
	return errors.Join(reset(ctx, f.local, charges), reset(ctx, f.store, charges))
}

func reset(ctx context.Context, s Store, charges []Charge) error {
	r, ok := s.(Resetter)
	if !ok {
		return fmt.Errorf("ratelimit: a %T cannot be reset: %w", s, errors.ErrUnsupported)
	}
	return r.Reset(ctx, charges)
}

// Reset implements Resetter.
func (s limiterStore) Reset(ctx context.Context, charges []Charge) error {
	if err := checkReset(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		if _, err := s.store.Reset(ctx, limiterKey(c), limiterRate(c)); err != nil {
			return err
		}
	}
	return nil
}
