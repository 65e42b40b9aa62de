package claims_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

func TestCheck(t *testing.T) {
	for _, row := range []struct {
		lease, retention time.Duration
		valid            bool
	}{{1, 1, true}, {1, 2, true}, {0, 1, false}, {-1, 1, false}, {2, 1, false}} {
		if err := claims.Check(idem.Claim{Lease: row.lease, Retention: row.retention}); (err == nil) != row.valid {
			t.Errorf("a lease of %d and a retention of %d: got %v, want valid %t", row.lease, row.retention, err, row.valid)
		}
	}
}

// scan fills what Columns returns, as a driver does.
func scan(a *claims.Answer, state idem.State, fingerprint int) {
	columns := a.Columns()
	*columns[0].(*int64), *columns[1].(*[]byte) = int64(state), make([]byte, fingerprint)
	*columns[3].(*int64) = 7
}

// Only the answer about a lock that another holds comes without a fingerprint.
func TestAnswer(t *testing.T) {
	for _, row := range []struct {
		state       idem.State
		fingerprint int
		valid       bool
	}{
		{idem.Claimed, 32, true}, {idem.Done, 32, true}, {idem.InProgress, 32, true}, {idem.InProgress, 0, true},
		{idem.InProgress, 1, false}, {idem.InProgress, 31, false}, {idem.Done, 31, false}, {idem.Done, 0, false},
	} {
		var a claims.Answer
		scan(&a, row.state, row.fingerprint)
		want := idem.Record{}
		if row.valid {
			want.State, want.Retained = row.state, row.state == idem.Done
			if row.state == idem.InProgress {
				want.RetryAfter = 7 * time.Microsecond
			}
		}
		if got, err := a.Record(); fmt.Sprint(got) != fmt.Sprint(want) || (err == nil) != row.valid {
			t.Errorf("%v with %d bytes of a fingerprint: got %+v, %v, want %+v", row.state, row.fingerprint, got, err, want)
		}
	}
}

type sqlState string

func (s sqlState) Error() string    { return "of the server: " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

// What an error proves: that the transaction was rolled back, or that the same
// statement may succeed now.
func TestSQLStates(t *testing.T) {
	for _, row := range []struct {
		err            error
		refused, again bool
	}{
		{sqlState("40001"), true, true}, {sqlState("40P01"), true, false}, {sqlState("40003"), false, false},
		{sqlState("23503"), true, false}, {sqlState("25P02"), true, false}, {sqlState("P0001"), true, false},
		{sqlState("08006"), false, false}, {sqlState("4000"), false, false}, {sqlState("230000"), false, false},
		{sqlState(""), false, false}, {errors.New("40001"), false, false}, {claims.ErrOvertaken, false, true},
	} {
		if got := claims.Refused(fmt.Errorf("wrapped: %w", row.err)); got != row.refused {
			t.Errorf("Refused(%v): got %t", row.err, got)
		}
		if got := claims.Again(row.err); got != row.again {
			t.Errorf("Again(%v): got %t", row.err, got)
		}
	}
}

// The error of a call says what was done, and that the context has ended, also
// where a driver has other words for it. Refusals stay as they are.
func TestCallError(t *testing.T) {
	live, ended := t.Context(), canceled(t)
	broken := errors.New("broken")
	for _, row := range []struct {
		ctx  context.Context
		err  error
		is   error
		want string // "" is nil
	}{
		{live, nil, nil, ""}, {ended, nil, nil, ""},
		{live, broken, broken, "settle: broken"},
		{ended, broken, context.Canceled, "settle: context canceled (broken)"},
		{ended, context.Canceled, context.Canceled, "settle: context canceled"},
		{live, idem.ErrLost, idem.ErrLost, idem.ErrLost.Error()},
		{live, idem.ErrSettled, idem.ErrSettled, idem.ErrSettled.Error()},
		{live, sqlState("42P01"), sqlState("42P01"), "settle: of the server: 42P01; call Migrate"},
	} {
		err := claims.CallError(row.ctx, "settle", row.err)
		if (err == nil) != (row.want == "") || err != nil && (err.Error() != row.want || !errors.Is(err, row.is)) {
			t.Errorf("%v: got %v, want %q, which is %v", row.err, err, row.want, row.is)
		}
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Logs name the key, and warn of a handler only when it holds its transaction
// for a second while something waits for a connection.
func TestLogs(t *testing.T) {
	key := idem.Key{0xab, 0xcd, 8: 0xff}
	const named = "idempotency_key=abcd000000000000"
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			second := "time=" + time.Now().Add(time.Second).Format("2006-01-02T15:04:05.000Z07:00")
			defer claims.Watch(t.Context(), logger, key, func() bool { return waits }).Stop()
			time.Sleep(time.Second)
			synctest.Wait()
			warned := strings.Fields(log.String())
			if slices.Contains(warned, named) != waits || slices.Contains(warned, second) != waits {
				t.Errorf("waits %t: after a second the log has %q", waits, &log)
			}
			log.Reset()
			if err := claims.Ended(t.Context(), logger, key); !errors.Is(err, idem.ErrCommitUnknown) {
				t.Errorf("Ended: got %v, want ErrCommitUnknown", err)
			}
			if !slices.Contains(strings.Fields(log.String()), named) {
				t.Errorf("Ended has logged %q, want the key", &log)
			}
		})
	}
}

// A reply that is kept without its claim has a token of its own, by which Erase
// finds it all the same.
func TestKeepArgs(t *testing.T) {
	c := idem.Claim{Token: idem.ClaimToken([]byte("organiz.of claim"))}
	token := claims.KeepArgs(c, idem.Settlement{})[1].([]byte)
	if string(token[:8]) != "organiz." || bytes.Equal(token[8:], c.Token[8:]) {
		t.Errorf("got the token %q, want another one of the same organization", token)
	}
}
