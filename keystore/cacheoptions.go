package keystore

import (
	"cmp"
	"log/slog"
	"time"
)

// CacheOptions configures a [Cached]. The zero value is ready to use.
type CacheOptions struct {
	// Service says what keys may do: they are bound to its Scopes. An issuer
	// and middleware over the Cached take it over.
	Service Service

	// TTL is how long a key is used from the moment the store was asked. It bounds
	// how long a revocation made elsewhere can go unnoticed. Zero means 30 s.
	TTL time.Duration

	// NegativeTTL is how long a refusal is remembered: that a token has no key, or
	// one that is revoked, expired or suspended. It bounds how long a key made
	// elsewhere stays unknown, if [Cached.Run] does not learn of it. Zero: 5 s.
	NegativeTTL time.Duration

	// Size is how many usable keys are remembered, and as many refusals apart
	// from them, so that no flood of made-up tokens evicts a key. Beyond it the
	// least recently used are evicted, to the second. Zero means 100,000.
	//
	// A key takes about 290 bytes, and 160 more with a [Uses]. One that expires,
	// or has attributes or networks, takes 130 more and what these take; a child
	// also a copy of each ancestor without attributes. A refusal takes 150.
	Size int

	// Timeout bounds one question to the store, and so the wait of every
	// lookup that needs its answer. Zero means 2 s; it is at most TTL.
	Timeout time.Duration

	// FeedInterval is how often [Cached.Run] asks for new and changed keys.
	// Zero means 5 s.
	FeedInterval time.Duration

	// Logger gets a line when the feed fails and when it is back, when the store
	// answers again after five lookups in a row that failed, when it panics, and
	// for each scope that a key has and the Service does not. Nil means
	// [slog.Default].
	Logger *slog.Logger
}

func (o CacheOptions) withDefaults() CacheOptions {
	o.Service = o.Service.withDefaults()
	o.TTL = orDefault("TTL", o.TTL, 30*time.Second)
	o.NegativeTTL = orDefault("NegativeTTL", o.NegativeTTL, 5*time.Second)
	o.Size = orDefault("Size", o.Size, 100_000)
	// An answer that took longer than TTL would be too old to be used.
	o.Timeout = min(orDefault("Timeout", o.Timeout, 2*time.Second), o.TTL)
	o.FeedInterval = orDefault("FeedInterval", o.FeedInterval, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}
