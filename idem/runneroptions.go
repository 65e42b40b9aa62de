package idem

import (
	"cmp"
	"log/slog"
	"math"
	"time"
)

// Options are the settings of a [Runner]. The zero value of each field stands
// for its default.
type Options struct {
	// Lease is how long a claim is held unless it is renewed, which a Runner does
	// every third of that. The default is 15 s. In a [Memory] claims have none:
	// they end with the process.
	Lease time.Duration
	// Retention is how long a key is remembered, and at least the Lease. The
	// default is 24 h.
	Retention time.Duration
	// Wait is how long a repeat waits for the first request. The default is 10
	// s; when negative, it does not wait for a request that runs. At most 4,096
	// repeats wait at once, and 256 of one tenant; the next get InProgress at
	// once.
	//
	// In joined mode any request waits as long for a transaction while too many
	// are open, half of Timeout when Wait is negative; then the error is
	// ErrNoTurn. If the database answers nobody, that wait ends after Timeout.
	Wait time.Duration
	// Timeout bounds each call of the store, and all that Settle tries before
	// it goes on in the background. The default is 2 s.
	//
	// After five claims in a row that failed, one a second is tried, and all
	// others fail at once; in joined mode also those that wait for a transaction.
	// The store is then asked without requests too, until it answers, Draining is
	// closed or nothing refers to the Runner: about once a second, for a claim
	// that is given back. All this is by shard where the [Store] has any.
	Timeout time.Duration
	// ExecutionsPerTenant is how many requests of one tenant may run at once.
	// Beyond that a request gets ErrTooMany, and the store is not asked whether
	// it is a repeat. A request whose save is retried in the background still
	// counts, so that the replies in memory are bounded. The default is 1,024.
	ExecutionsPerTenant int
	// Reexecute takes over a claim with an unknown outcome. The request may
	// then run twice.
	Reexecute bool
	// Join uses the store's ability to join transactions; the store must be a
	// [Joiner].
	Join bool
	// Seal encrypts the replies that are stored. Nil leaves them as they are.
	Seal *Seal
	// Draining ends all waits when it is closed, and lets none begin. It does
	// not touch what runs.
	Draining <-chan struct{}
	// Logger gets a line for each claim that could not be renewed or saved. The
	// default is slog.Default().
	Logger *slog.Logger
}

// forever is the lease of a claim in this process. A lease ends the claim of a
// process that died; this one ends with its process.
const forever = time.Duration(math.MaxInt64)

func (o Options) withDefaults() Options {
	if min(o.Lease, o.Retention, o.Timeout) < 0 {
		panic("idem: NewRunner with a negative duration")
	}
	if o.ExecutionsPerTenant < 0 {
		panic("idem: NewRunner with a negative limit")
	}
	if o.Seal != nil && o.Seal.opens == nil {
		panic("idem: NewRunner with a Seal that ParseSeal did not make")
	}
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	o.Wait = cmp.Or(o.Wait, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	// Their sum must not overflow, where they are meant to have no end.
	o.Wait, o.Timeout = min(o.Wait, forever/4), min(o.Timeout, forever/4)
	o.ExecutionsPerTenant = cmp.Or(o.ExecutionsPerTenant, 1024)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Retention < o.Lease {
		panic("idem: NewRunner with a Retention shorter than the Lease")
	}
	return o
}
