package keystore

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

const secondsOfDay = 24 * 60 * 60

// tallies are the uses of keys that wait to be written.
type tallies struct {
	room int // how many may wait

	mu      sync.Mutex
	pending map[tallyID]*tally
	dropped int64 // requests for which there was no room, since the last take
}

// A tally is the uses of a key on one day until they are written. A Caller
// points to its latest one, so that a request takes the lock of its key alone.
type tally struct {
	tallyID
	all     *tallies
	second  atomic.Int64 // since 1970, in which the address was asked for
	refused atomic.Pointer[Refusal]

	mu    sync.Mutex
	taken bool // by a flush: what follows goes to another tally
	used
}

type tallyID struct {
	organization, id string
	day              int64           // since 1970, in UTC
	registry         *scope.Registry // of the scopes
}

type used struct {
	at       time.Time
	from     netip.Addr
	asked    bool // from was asked for, and may be zero nevertheless
	requests int64
	scopes   scope.Set
	of       *child // nil for a key without a parent
}

// note adds u to the tally of this id, and makes it the latest of its caller.
func (l *tallies) note(latest *atomic.Pointer[tally], id *tallyID, u *used) {
	if t := latest.Load(); t.isOf(l, id) && t.add(u) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.pending[*id]
	switch {
	case t != nil:
	case len(l.pending) < l.room:
		t = &tally{tallyID: *id, all: l}
		l.pending[*id] = t
	default:
		l.dropped += u.requests
		return
	}
	t.add(u) // no flush takes a tally that is pending
	latest.Store(t)
}

func (t *tally) isOf(l *tallies, id *tallyID) bool {
	return t != nil && t.all == l && (&t.tallyID == id || t.tallyID == *id)
}

// add adds u to t, or reports that t was taken.
func (t *tally) add(u *used) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken {
		return false
	}
	if u.at.After(t.at) {
		t.at = u.at
		if u.asked {
			t.from, t.asked = u.from, true
			t.second.Store(u.at.Unix())
		}
	}
	t.requests += u.requests
	t.scopes = t.scopes.Union(u.scopes)
	t.of = cmp.Or(u.of, t.of)
	return true
}

func (t *tally) take(taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = taken
}

// uses returns what a tally that was taken holds: the use of a key, which is one
// of each of its ancestors.
func (t *tally) uses() []Use {
	u := Use{Organization: t.organization, ID: t.id, At: t.at, From: t.from, Scopes: t.scopes.Names(),
		Requests: t.requests}
	if t.at.IsZero() && len(u.Scopes) > 0 { // the request came before a flush, and its scopes were checked after it
		u.At = time.Unix(t.day*secondsOfDay, 0)
	}
	uses := []Use{u}
	if refused := t.refused.Load(); refused != nil {
		uses[0].Refused = *refused
	}
	if t.of != nil {
		for _, a := range t.of.ancestors {
			given, _ := t.registry.Parse(a.Scopes)
			u.ID, u.Scopes = a.ID, given.Granting(t.scopes).Names() // it may have them by another one
			uses = append(uses, u)
		}
	}
	return uses
}

// take takes all that wait, and how many requests were dropped.
func (l *tallies) take() (taken []*tally, dropped int64) {
	l.mu.Lock()
	pending := l.pending
	l.pending = make(map[tallyID]*tally)
	dropped, l.dropped = l.dropped, 0
	l.mu.Unlock()
	for _, t := range pending {
		t.take(true)
		taken = append(taken, t)
	}
	return taken, dropped
}

// putBack adds those that could not be written to what waits.
func (l *tallies) putBack(taken []*tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range taken {
		t.refused.Store(nil) // other processes may have written later ones
		switch next := l.pending[t.tallyID]; {
		case next != nil:
			next.add(&t.used)
		case len(l.pending) < l.room:
			t.take(false)
			l.pending[t.tallyID] = t
		default:
			l.dropped += t.requests
		}
	}
}
