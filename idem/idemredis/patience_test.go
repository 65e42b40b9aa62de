package idemredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A timetable is a Redis in a bubble, which takes a time that the test says for
// each trip and gives every claim. It is a hook that asks nothing else.
type timetable struct {
	start             time.Time
	mu                sync.Mutex
	single, pipelined []trip // how the next trips go; the last one stands for all later ones
	sent              []string
}

type trip struct {
	takes time.Duration
	fails bool // as when the connection breaks
}

var errBroken = errors.New("the connection broke")

func newTimetable(t *testing.T, single, pipelined []trip) (*timetable, *idemredis.Store) {
	client := redistest.Connect(t, &redis.Options{MaxRetries: -1})
	h := &timetable{start: time.Now(), single: single, pipelined: pipelined}
	client.AddHook(hook{single: h.command, pipelined: h.pipeline})
	return h, idemredis.New(client, idemredis.Options{})
}

// next takes a trip off a list and makes it.
func (h *timetable) next(trips *[]trip) error {
	h.mu.Lock()
	now := (*trips)[0]
	if len(*trips) > 1 {
		*trips = (*trips)[1:]
	}
	h.mu.Unlock()
	time.Sleep(now.takes)
	if now.fails {
		return errBroken
	}
	return redis.Nil // which a SET with NX and GET says of a new key
}

func (h *timetable) command(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
	cmd.SetErr(h.next(&h.single))
	return cmd.Err()
}

func (h *timetable) pipeline(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
	h.mu.Lock()
	h.sent = append(h.sent, fmt.Sprintf("%d after %v", len(cmds), time.Since(h.start)))
	h.mu.Unlock()
	err := h.next(&h.pipelined)
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// mustHaveSent holds how many calls each pipeline had, and when it was sent.
func (h *timetable) mustHaveSent(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.sent, want) {
		t.Errorf("got the pipelines %v, want %v", h.sent, want)
	}
}

// begin makes a call of its own, whose error is to be the wanted one, and
// returns when it waits for its trip, or for one to be made.
func begin(ctx context.Context, t *testing.T, s *idemredis.Store, key string, want error) {
	t.Helper()
	go func() {
		if r, err := s.Begin(ctx, aClaim(key)); !errors.Is(err, want) || err == nil && r.State != idem.Claimed {
			t.Errorf("Begin of %s: got %v, %v, want %v", key, r.State, err, want)
		}
	}()
	synctest.Wait()
}

// A trip stalls after four times what the last answered one took, but not
// before 100 ms and not after a second. Then what waits is sent. A group whose
// trips stall is sent again, each time after twice as long.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		last trip
		want time.Duration
	}{
		{trip{takes: 0}, 100 * ms},
		{trip{takes: 24 * ms}, 100 * ms},
		{trip{takes: 30 * ms}, 120 * ms},
		{trip{takes: 240 * ms}, 960 * ms},
		{trip{takes: 260 * ms}, 1000 * ms},
		{trip{takes: 240 * ms, fails: true}, 100 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			never := trip{takes: time.Hour}
			h, s := newTimetable(t, []trip{row.last, never}, []trip{never, never, never, {}})
			if _, err := s.Begin(t.Context(), aClaim("last")); (err != nil) != row.last.fails {
				t.Errorf("Begin: %v", err)
			}
			h.start = time.Now()
			begin(t.Context(), t, s, "hangs", nil)
			begin(t.Context(), t, s, "hangs too", nil)
			begin(t.Context(), t, s, "waits", nil)
			time.Sleep(2 * time.Hour) // until all trips are over
			var want []string
			for _, times := range []time.Duration{1, 2, 4, 8} {
				want = append(want, fmt.Sprintf("1 after %v", times*row.want))
			}
			t.Logf("after a trip of %+v", row.last)
			h.mustHaveSent(t, want...)
		})
	}
}

// Of the trips of one group the first that is answered counts, or else the
// last.
func TestTripsOfOneGroup(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		name  string
		trips []trip
		want  error
		takes time.Duration // since the group was sent
		sends int
	}{
		{"the first is late", []trip{{150 * ms, false}, {time.Hour, false}}, nil, 150 * ms, 2},
		{"the second overtakes", []trip{{time.Hour, false}, {50 * ms, false}}, nil, 150 * ms, 2},
		{"the first breaks", []trip{{150 * ms, true}, {90 * ms, false}}, nil, 190 * ms, 2},
		{"the second breaks", []trip{{190 * ms, false}, {50 * ms, true}}, nil, 190 * ms, 2},
		{"the second breaks early", []trip{{350 * ms, false}, {50 * ms, true}}, nil, 350 * ms, 2},
		{"both break", []trip{{150 * ms, true}, {90 * ms, true}}, errBroken, 190 * ms, 2},
		{"it breaks at once", []trip{{50 * ms, true}}, errBroken, 50 * ms, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newTimetable(t, []trip{{takes: time.Hour}}, row.trips)
			begin(t.Context(), t, s, "hangs", nil)
			begin(t.Context(), t, s, "hangs too", nil)
			_, err := s.Begin(t.Context(), aClaim("waits"))
			if took := time.Since(h.start) - 100*ms; !errors.Is(err, row.want) || took != row.takes {
				t.Errorf("%s: got %v after %v, want %v after %v", row.name, err, took, row.want, row.takes)
			}
			time.Sleep(2 * time.Hour)
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.sent) != row.sends {
				t.Errorf("%s: the group was sent %d times, want %d", row.name, len(h.sent), row.sends)
			}
		})
	}
}

// A call that comes while a group waits to be sent once more is in another one.
// The group is not sent again if its first trip is answered meanwhile.
func TestNoCallJoinsASentGroup(t *testing.T) {
	const ms = time.Millisecond
	for first, want := range map[time.Duration][]string{
		time.Hour: {"2 after 100ms", "1 after 240ms", "1 after 240ms"},
		130 * ms:  {"2 after 100ms", "1 after 240ms"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newTimetable(t, []trip{{takes: time.Hour}}, []trip{{takes: first}, {}})
			begin(t.Context(), t, s, "hangs", nil)
			begin(t.Context(), t, s, "hangs too", nil)
			ctx, leave := context.WithCancel(t.Context())
			begin(t.Context(), t, s, "stays", nil)
			begin(ctx, t, s, "leaves", context.Canceled)
			time.Sleep(140 * ms) // both are sent, after 100 ms
			begin(t.Context(), t, s, "takes the second trip", nil)
			leave() // the group does not count any more
			synctest.Wait()
			begin(t.Context(), t, s, "takes the first trip", nil)
			time.Sleep(70 * ms) // after 200 ms the group is to be sent again
			begin(t.Context(), t, s, "comes", nil)
			time.Sleep(2 * time.Hour)
			h.mustHaveSent(t, want...)
		})
	}
}
