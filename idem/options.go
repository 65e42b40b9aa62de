package idem

import (
	"log/slog"
	"time"
)

// Options are the settings of a [Runner]. The zero value of each field stands for its default.
type Options struct {
	// Lease is how long a claim is held without a sign of life. A Runner renews it every third of that. The default is
	// 15 s. A [Memory] has no need of it: its claims last for as long as they are not settled.
	Lease time.Duration
	// Retention is how long a key is remembered, and at least the Lease. The default is 24 h.
	Retention time.Duration
	// Wait is how long a duplicate waits for the first request. The default is 10 s; when negative, it does not wait for a
	// request that runs.
	Wait time.Duration
	// Timeout bounds each call of the store, and all that Settle tries before it goes on in the background. The default is 2 s.
	Timeout time.Duration
	// Waiters is how many duplicates may wait at once, WaitersPerOwner how many of one owner. Those beyond are told at once
	// that the request is in flight. The defaults are 4,096 and 256.
	Waiters, WaitersPerOwner int
	// ExecutionsPerOwner is how many requests of one owner may run at once; beyond that the store is not even asked whether a
	// request is a repeat. One whose save is retried in the background still counts, so that the answers kept for saving are
	// bounded. The default is 1,024.
	ExecutionsPerOwner int
	// Reexecute takes over a claim whose outcome nobody knows, and by that may run a request twice.
	Reexecute bool
	// Join uses the store's ability to join transactions; the store must be a [Joiner].
	Join bool
	// Draining ends all waits when it is closed, and lets none begin; what runs is not touched.
	Draining <-chan struct{}
	// Logger is told of claims that could not be renewed or saved. The default is slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	for _, d := range []*time.Duration{&o.Lease, &o.Retention, &o.Timeout} {
		if *d < 0 {
			panic("idem: NewRunner with a negative duration")
		}
	}
	for _, n := range []*int{&o.Waiters, &o.WaitersPerOwner, &o.ExecutionsPerOwner} {
		if *n < 0 {
			panic("idem: NewRunner with a negative limit")
		}
	}
	setDefault(&o.Lease, 15*time.Second)
	setDefault(&o.Retention, 24*time.Hour)
	setDefault(&o.Wait, 10*time.Second)
	setDefault(&o.Timeout, 2*time.Second)
	setDefault(&o.Waiters, 4096)
	setDefault(&o.WaitersPerOwner, 256)
	setDefault(&o.ExecutionsPerOwner, 1024)
	if o.Retention < o.Lease {
		panic("idem: NewRunner with a Retention shorter than the Lease")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
