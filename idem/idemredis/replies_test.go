package idemredis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// What a reply means, and that one of another form is an error.
func TestReplies(t *testing.T) {
	const print = "a fingerprint of thirty-two byte"
	record := func(state idem.State, change func(*idem.Record)) *idem.Record {
		r := &idem.Record{State: state, Fingerprint: [32]byte([]byte(print))}
		change(r)
		return r
	}
	waits := func(d time.Duration) *idem.Record {
		return record(idem.InProgress, func(r *idem.Record) { r.RetryAfter = d })
	}
	other := errors.New("something else")
	var reply any // of an old Redis to each script
	client := redistest.Connect(t, &redis.Options{})
	client.AddHook(hook{single: func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		if script, ok := cmd.(*redis.Cmd); ok {
			script.SetVal(reply)
			return nil
		}
		cmd.SetErr(errors.New("ERR syntax error")) // to SET
		return cmd.Err()
	}})
	store := idemredis.New(client, idemredis.Options{})
	for _, row := range []struct {
		reply   []any
		want    *idem.Record // nil: an error
		settled error        // if the reply is its first field, to Settle
	}{
		{[]any{int64(1), print, int64(3)}, record(idem.Claimed, func(r *idem.Record) { r.Attempt = 3 }), other},
		{[]any{int64(2), print, int64(5)}, waits(4 * time.Millisecond), other},
		{[]any{int64(2), print, int64(3)}, waits(2 * time.Millisecond), other},
		{[]any{int64(2), print, int64(2)}, waits(time.Millisecond), other},
		{[]any{int64(2), print, int64(1)}, waits(time.Millisecond), other},
		{[]any{int64(2), print, int64(math.MaxInt64)}, waits(math.MaxInt64 / 1_000_000 * time.Millisecond), other},
		{[]any{int64(3), print, "answer"}, record(idem.Done, func(r *idem.Record) {
			r.Payload, r.Retained = []byte("answer"), true
		}), other},
		{[]any{int64(4), print, int64(0)}, record(idem.Unknown, func(*idem.Record) {}), other},
		{[]any{int64(1), print[1:], int64(3)}, nil, other},
		{[]any{int64(1), print, "answer"}, nil, other},
		{[]any{int64(3), print, int64(3)}, nil, other},
		{[]any{int64(1), print, int64(3), int64(3)}, nil, other},
		{[]any{int64(1), print}, nil, other},
		{[]any{"ok"}, nil, nil},
		{[]any{"lost"}, nil, idem.ErrLost},
		{[]any{"settled"}, nil, idem.ErrSettled},
		{[]any{"OK"}, nil, other},
	} {
		c := aClaim("k")
		reply = row.reply
		got, err := store.Begin(t.Context(), c)
		if (err != nil) != (row.want == nil) || isRefusal(err) || row.want != nil && !reflect.DeepEqual(got, *row.want) {
			t.Errorf("%v: got %+v, %v, want %+v", row.reply, got, err, row.want)
		}
		reply = row.reply[0]
		for what, err := range map[string]error{
			"Settle": store.Settle(t.Context(), c.Key, c.Token, finished("answer")),
			"Extend": store.Extend(t.Context(), c.Key, c.Token, c.Lease),
		} {
			if row.settled == other && err != nil && !isRefusal(err) {
				continue
			}
			if err != row.settled {
				t.Errorf("%s, %v: got %v, want %v", what, reply, err, row.settled)
			}
		}
	}
}

// Times are sent in whole milliseconds, rounded up, and one more. A nanosecond
// is a time.
func TestTimesAsTheyAreSent(t *testing.T) {
	for _, row := range []struct{ d, sent time.Duration }{
		{1, 2},
		{time.Millisecond, 2},
		{time.Millisecond + 1, 3},
		{2 * time.Millisecond, 3},
		{time.Minute, 60_001},
	} {
		client := redistest.Connect(t, &redis.Options{})
		sent := unsent(client)
		store, c := idemredis.New(client, idemredis.Options{}), aClaim("k")
		c.Lease, c.Retention = row.d, row.d
		_, _ = store.Begin(t.Context(), c)
		_ = store.Extend(t.Context(), c.Key, c.Token, row.d)
		_ = store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.OutcomeUnknown, Retention: row.d})
		got := append(*sent, "", "", "")
		number := fmt.Sprintf(" %d", row.sent)
		if !strings.Contains(got[0], " px"+number+" ") || !strings.HasSuffix(got[1], number) ||
			!strings.HasSuffix(got[2], number) {
			t.Errorf("%v: got the commands %q, want the number%s", row.d, *sent, number)
		}
	}
}

// A create is two commands, its claim and its answer, and a repeat is one, also of
// an answer that is empty, and behind tokens of claims that were freed.
func TestCommands(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	store := ownStore(t, client)
	sent := counted(client)
	warm := aClaim("warm") // Redis is to know the script
	mustBegin(t, store, warm, idem.Claimed)
	mustSettle(t, store, warm, finished(""))
	for _, payload := range []string{"", "answer"} {
		for _, frees := range []int{0, 2, 12} {
			c := aClaim(fmt.Sprint(payload, frees))
			for range frees {
				mustBegin(t, store, c, idem.Claimed)
				mustSettle(t, store, c, freed)
				c = again(c)
			}
			before := sent.Load()
			mustBegin(t, store, c, idem.Claimed)
			mustSettle(t, store, c, finished(payload))
			if n := sent.Load() - before; frees == 0 && n != 2 {
				t.Errorf("a create took %d commands, want two", n)
			}
			before = sent.Load()
			r := mustBegin(t, store, again(c), idem.Done)
			if n := sent.Load() - before; n != 1 || string(r.Payload) != payload {
				t.Errorf("%q, freed %d times: got %q with %d commands, want one", payload, frees, r.Payload, n)
			}
		}
	}
}
