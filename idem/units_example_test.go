package idem_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A job sends charges to the billing. What it sent before an error comes again.
func ExampleCounter() {
	ctx, store := context.Background(), new(idem.Memory) // or one of a database, with KeepCharges
	billed, calls := make(map[string]int64), 0
	bill := func(_ context.Context, c idem.Charge) error {
		if calls++; calls == 2 {
			return errors.New("the billing does not answer")
		}
		billed[c.ID] = c.Units // once for each ID
		return nil
	}
	send := func() error {
		for {
			charges, err := store.Charges(ctx, 1000)
			if err != nil || len(charges) == 0 {
				return err
			}
			for _, c := range charges {
				if err := bill(ctx, c); err != nil {
					return err
				}
			}
			if err := store.Acknowledge(ctx, charges[len(charges)-1].Number); err != nil {
				return err
			}
		}
	}

	fmt.Println(store.Count(ctx, idem.NewAccount("acme", "key 1"), 5))
	fmt.Println(store.Count(ctx, idem.NewAccount("acme", "key 2"), 20))
	fmt.Println(send())
	fmt.Println(send())
	fmt.Println(len(billed), "charges in", calls, "calls")
	used, _, err := store.Used(ctx, idem.NewAccount("acme"), time.Time{})
	fmt.Println(used, err)
	// Output:
	// <nil>
	// <nil>
	// the billing does not answer
	// <nil>
	// 2 charges in 4 calls
	// 25 <nil>
}

// A consumer of a queue begins no message of a tenant that has used 100 pages in a
// month. What comes again is not charged again.
func Example_units() {
	type message struct{ id, tenant, body string }
	convert := func(m message) (pages int64) { return int64(len(m.body)) }
	errLater := errors.New("put it back")
	ctx, store := context.Background(), new(idem.Memory)
	runner := idem.NewRunner(store, idem.Options{})

	consume := func(m message) error {
		account := idem.NewAccount(m.tenant)
		record, execution, err := runner.Begin(ctx, idem.Claim{Key: idem.NewKey(m.tenant, m.id), Tenant: m.tenant,
			Fingerprint: sha256.Sum256([]byte(m.body)), Account: account, Units: 1}, nil)
		switch {
		case err != nil || execution == nil && record.State != idem.Done:
			return cmp.Or(err, errLater)
		case execution == nil: // it came again, and is not charged again
			return nil
		}
		defer execution.Settle(ctx, idem.Settlement{}) // after a panic: 1 unit, uncertain
		month, _ := idem.Month.Bounds(time.Now())
		if used, _, err := store.Used(ctx, account, month); err != nil || used >= 100 {
			return cmp.Or(err, execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeFree}), errLater)
		}
		return execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeDone, Units: convert(m)})
	}

	long := message{"1", "acme", fmt.Sprintf("%120s", "")}
	fmt.Println(consume(long))
	fmt.Println(consume(long))
	fmt.Println(consume(message{"2", "acme", "short"}))
	used, _, err := store.Used(ctx, idem.NewAccount("acme"), time.Time{})
	fmt.Println(used, err)
	// Output:
	// <nil>
	// <nil>
	// put it back
	// 120 <nil>
}
