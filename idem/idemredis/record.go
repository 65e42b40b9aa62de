package idemredis

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A key is a string, and its expiry the end of its retention. The bytes are
//
//	 1      c: claimed, d: OutcomeDone, u: OutcomeUnknown, f: only freed claims
//	32      fingerprint of the first request
//	16      token of the claim, also when it is settled
//	10      attempt, in decimal digits
//	16      lease, in decimal digits: it ends when the key has no more than these
//	        milliseconds to its expiry. 15 nines after a Begin was told that the
//	        outcome is unknown: then it cannot be renewed
//	 2      number of freed claims, in decimal digits
//	16 each tokens of freed claims, the latest last
//	        payload, when OutcomeDone
//
// The lease is written as a part of the time to live, so that a claim needs no
// clock and one plain SET makes it.
//
// A command that nobody waits for any more may still arrive, from a network
// that healed or a Redis that hung, and in any order: a Begin that comes behind
// its own freeing would claim the key for nobody. So the tokens of freed claims
// stay, for freedFor, and keep a plain SET from claiming meanwhile. More than
// maxFreed of them are not kept: a client that has a key freed again and again
// would make it grow without end. The worst that can come of a late Begin is
// that the outcome is unknown; nothing runs twice.
const (
	freedFor = 20 * time.Minute // TCP sends again for a quarter of an hour
	maxFreed = 32

	headerLength = 1 + 32 + 16 + 10 + 16 + 2
)

var errReply = errors.New("idemredis: the key holds something else, or this is no Redis")

// claimed is the key of a first claim.
func claimed(c *idem.Claim) []byte {
	b := make([]byte, 0, headerLength)
	b = append(b, 'c')
	b = append(b, c.Fingerprint[:]...)
	b = append(b, c.Token[:]...)
	return fmt.Appendf(b, "%010d%016d00", 1, millis(c.Retention)-millis(c.Lease))
}

// done reads a key. It is false unless the key's request is done.
func done(key string) (r idem.Record, ok bool) {
	if len(key) < headerLength || key[0] != 'd' {
		return idem.Record{}, false
	}
	freed, err := strconv.ParseUint(key[headerLength-2:headerLength], 10, 0)
	payload := headerLength + 16*int(freed)
	if err != nil || len(key) < payload {
		return idem.Record{}, false
	}
	copy(r.Fingerprint[:], key[1:])
	r.State, r.Payload, r.Retained = idem.Done, []byte(key[payload:]), true
	return r, true
}

// record reads a reply of beginScript.
func record(reply any) (idem.Record, error) {
	fields, _ := reply.([]any)
	if len(fields) != 3 {
		return idem.Record{}, errReply
	}
	state, _ := fields[0].(int64)
	first, _ := fields[1].(string)
	n, _ := fields[2].(int64)
	payload, whole := fields[2].(string)
	r := idem.Record{State: idem.State(state)}
	if len(first) != len(r.Fingerprint) || whole != (r.State == idem.Done) {
		return idem.Record{}, errReply
	}
	copy(r.Fingerprint[:], first)
	switch r.State {
	case idem.Claimed:
		r.Attempt = int(n)
	case idem.InProgress:
		// Without the one that millis adds, so never more than the lease.
		r.RetryAfter = time.Duration(min(max(n-1, 1), math.MaxInt64/1_000_000)) * time.Millisecond
	case idem.Done:
		r.Payload, r.Retained = []byte(payload), true
	}
	return r, nil
}

// verdict reads a reply of the other scripts.
func verdict(reply any, err error) error {
	if err != nil {
		return err
	}
	switch reply {
	case "ok":
		return nil
	case "lost":
		return idem.ErrLost
	case "settled":
		return idem.ErrSettled
	}
	return fmt.Errorf("%w: %v", errReply, reply)
}

// millis rounds up, and adds one: the server's expiries see whole milliseconds,
// and none is to be early.
func millis(d time.Duration) int64 { return int64((d-1)/time.Millisecond) + 2 }
