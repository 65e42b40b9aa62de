package claims_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
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
	for account, valid := range map[idem.Account]bool{
		"": true, "acme": false, "\x00a": false, "acme\x00": true,
		idem.Account(strings.Repeat("a", 511) + "\x00"): true, idem.Account(strings.Repeat("a", 512) + "\x00"): false,
	} {
		if err := claims.Check(idem.Claim{Lease: 1, Retention: 1, Account: account}); (err == nil) != valid {
			t.Errorf("the account %q of %d bytes: got %v, want valid %t", account, len(account), err, valid)
		}
	}
}

// A claim without an account has no units, and a reply that rolls back charges
// none.
func TestUnitsOfArgs(t *testing.T) {
	for _, row := range []struct {
		account idem.Account
		units   int64
		want    string
	}{
		{"", 5, "[<nil> <nil>]"}, {"a\x00", 5, "[[97 0] 5]"}, {"a\x00", 0, "[[97 0] 0]"}, {"a\x00", -1, "[[97 0] 0]"},
		{"a\x00", 1<<63 - 1, "[[97 0] 281474976710656]"},
	} {
		if got := fmt.Sprint(claims.Args(&idem.Claim{Account: row.account, Units: row.units})[6:]); got != row.want {
			t.Errorf("a claim of %q with %d units: got %s, want %s", row.account, row.units, got, row.want)
		}
	}
	for _, row := range []struct {
		s    idem.Settlement
		want string
	}{
		{idem.Settlement{Units: 5}, "5"}, {idem.Settlement{Units: 5, RollBack: true}, "<nil>"},
		{idem.Settlement{}, "<nil>"}, {idem.Settlement{Units: -1}, "<nil>"},
		{idem.Settlement{Units: 1<<63 - 1}, "281474976710656"},
	} {
		if got := fmt.Sprint(claims.SettleArgs(idem.Key{}, idem.ClaimToken{}, row.s)[5]); got != row.want {
			t.Errorf("%+v: got %s, want %s", row.s, got, row.want)
		}
	}
}

// The sum of an account begins with a whole day, and after the rows that are no
// accounts; what is within it lies below the end.
func TestUsedArgs(t *testing.T) {
	const day = 24 * 3600 * 1000000
	noon := time.Date(1970, 1, 11, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		account idem.Account
		since   time.Time
		want    []any
	}{
		{idem.NewAccount("a", "\xff"), noon, []any{"a\x00\xff\x00", "a\x00\xff\x01", int64(10), int64(10 * day)}},
		{idem.NewAccount("a"), time.Time{}, []any{"a\x00", "a\x01", int64(2), int64(2 * day)}},
		{"", time.Time{}, []any{"", "", int64(2), int64(2 * day)}},
	} {
		got := claims.UsedArgs(row.account, row.since)
		got[0], got[1] = string(got[0].([]byte)), string(got[1].([]byte))
		if !slices.Equal(got, row.want) {
			t.Errorf("%q since %v: got %v, want %v", row.account, row.since, got, row.want)
		}
	}
}

// The id is what billing systems find duplicates by, so it stays as it is.
func TestCharge(t *testing.T) {
	var r claims.Row
	columns := r.Columns()
	key, token := idem.Key{1}, idem.ClaimToken{2}
	*columns[0].(*[]byte), *columns[1].(*[]byte), *columns[2].(*[]byte) = key[:], token[:], []byte("a\x00")
	*columns[3].(*int64), *columns[4].(*int64) = 5, 1_500_000
	for state, uncertain := range map[idem.State]bool{idem.Claimed: true, idem.Done: false, idem.Unknown: true} {
		*columns[5].(*int64) = int64(state)
		sum := sha256.Sum256(append(key[:], token[:]...))
		want := idem.Charge{
			ID: fmt.Sprintf("%x", sum[:16]), Account: "a\x00", Units: 5,
			Began: time.Unix(1, 500_000_000).UTC(), Uncertain: uncertain,
		}
		if got := r.Charge(); got != want {
			t.Errorf("in state %v: got %+v, want %+v", state, got, want)
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

// myNumber is an error as the driver of MySQL has it.
type myNumber struct{ Number uint16 }

func (n myNumber) Error() string { return fmt.Sprint("of the server: ", n.Number) }

// What an error means, after the handler has run and at COMMIT: whose fault it
// is, and whether anything may stand. Before the handler it is the database's.
func TestFault(t *testing.T) {
	const again = "again" // nothing stands, and another try may succeed
	faults := map[string]error{
		"broken": idem.ErrBroken, "constraint": idem.ErrConstraint, "unknown": idem.ErrCommitUnknown,
	}
	for _, row := range []struct {
		err              error
		settling, commit string
	}{
		{sqlState("40001"), again, again}, {sqlState("40P01"), again, again}, {sqlState("40003"), again, "unknown"},
		{sqlState("55P03"), again, again}, {sqlState("25P03"), again, again}, {sqlState("25P04"), again, again},
		{sqlState("23503"), "constraint", "constraint"}, {sqlState("23505"), "constraint", "constraint"},
		{sqlState("P0001"), "constraint", "constraint"}, {sqlState("P0002"), "broken", "broken"},
		{sqlState("25P02"), "broken", "broken"}, {sqlState("25006"), "broken", "broken"},
		{sqlState("22012"), "broken", "broken"}, {sqlState("42501"), "broken", "broken"},
		{sqlState("57014"), "broken", "broken"}, {sqlState("57P01"), again, "unknown"}, {sqlState("57P03"), again, "unknown"},
		{sqlState("08006"), again, "unknown"}, {sqlState("08P01"), again, "unknown"}, {sqlState("53100"), again, "unknown"},
		{sqlState("58030"), again, "unknown"}, {sqlState("F0001"), again, "unknown"}, {sqlState("XX000"), again, "unknown"},
		{sqlState("4000"), again, "unknown"}, {sqlState("230000"), again, "unknown"},
		{errors.New("40001"), again, "unknown"}, {errors.New("broken pipe"), again, "unknown"},
		{myNumber{1213}, again, again}, {myNumber{3101}, again, again}, {myNumber{1205}, again, "unknown"},
		{myNumber{1053}, again, "unknown"}, {myNumber{1290}, again, "unknown"}, {myNumber{1062}, again, "unknown"},
		{myNumber{1792}, "broken", "unknown"}, {myNumber{1142}, "broken", "unknown"}, {myNumber{1100}, "broken", "unknown"},
		{myNumber{1969}, "broken", "unknown"}, {myNumber{3024}, "broken", "unknown"},
		{errors.New("attempt to write a readonly database (8)"), "broken", "broken"},
		{errors.New("FOREIGN KEY constraint failed"), "constraint", "constraint"},
		{errors.New("database is locked"), again, "unknown"},
	} {
		means := func(ctx context.Context, at claims.Moment) string {
			err := claims.Fault(ctx, "settle", at, fmt.Errorf("wrapped: %w", row.err))
			if !errors.Is(err, row.err) && ctx.Err() == nil {
				t.Errorf("%v at %d: got %v, which is not it", row.err, at, err)
			}
			for name, fault := range faults {
				if errors.Is(err, fault) {
					return name
				}
			}
			return again
		}
		live, ended := t.Context(), canceled(t)
		if got := means(live, claims.AtClaim); got != again {
			t.Errorf("%v at the claim: got %s, want the database's", row.err, got)
		}
		if got := means(live, claims.AtSettlement); got != row.settling {
			t.Errorf("%v at the settlement: got %s, want %s", row.err, got, row.settling)
		}
		if got := means(live, claims.AtCommit); got != row.commit {
			t.Errorf("%v at COMMIT: got %s, want %s", row.err, got, row.commit)
		}
		if got, want := claims.Refused(row.err), row.commit != "unknown"; got != want {
			t.Errorf("Refused(%v): got %t", row.err, got)
		}
		// The driver may have cancelled a statement because the time was over.
		if means(ended, claims.AtSettlement) == "broken" || means(ended, claims.AtCommit) == "broken" {
			t.Errorf("%v when the time is over is said to be the handler's", row.err)
		}
	}
	if err := claims.Fault(t.Context(), "settle", claims.AtCommit, nil); err != nil {
		t.Errorf("no error: got %v", err)
	}
}

// The same statement may succeed now.
func TestAgain(t *testing.T) {
	for _, row := range []struct {
		err  error
		want bool
	}{
		{sqlState("40001"), true}, {sqlState("40P01"), false}, {errors.New("40001"), false}, {claims.ErrOvertaken, true},
	} {
		if got := claims.Again(row.err); got != row.want {
			t.Errorf("Again(%v): got %t", row.err, got)
		}
	}
}

// The names have the schema from when it is known on: a table that is not there
// yet is asked for again, and a failure is the caller's.
func TestNames(t *testing.T) {
	n := claims.NewNames("x_", claims.PostgresHome, claims.PostgresWhere)
	const statement = "UPDATE sallyport_idem SET n = 'sallyport_idem'::regclass, " +
		"(SELECT u FROM sallyport_used, sallyport_usage)"
	failed := errors.New("failed")
	for i, answer := range []error{sql.ErrNoRows, failed, nil, failed} {
		err := n.Locate(t.Context(), func(_ context.Context, s string, dest []any, _ ...any) error {
			if s != claims.PostgresWhere {
				t.Errorf("asked by %s", s)
			}
			*dest[0].(*string), *dest[1].(*string) = `"s"`, `'"s".x_idem'`
			return answer
		})
		if (err == failed) != (i == 1) || err != nil && err != failed {
			t.Errorf("after %v: got %v", answer, err)
		}
		want := "UPDATE x_idem SET n = 'x_idem'::regclass, (SELECT u FROM x_used, x_usage)"
		if i >= 2 {
			want = `UPDATE "s".x_idem SET n = '"s".x_idem'::regclass, (SELECT u FROM "s".x_used, "s".x_usage)`
		}
		if got := n.Text(statement); got != want || n.Text(statement) != want {
			t.Errorf("after %v: got %s, want %s", answer, got, want)
		}
	}
	// A call that asks while another one is answered gets the same answer.
	if asked := n.Text(claims.PostgresWhere); strings.Count(asked, "idem") != 1 ||
		!strings.Contains(asked, `to_regclass('"s".x_idem')`) {
		t.Errorf("asked again by %s", asked)
	}
	none := claims.NewNames("x_", "", "")
	err := none.Locate(t.Context(), func(context.Context, string, []any, ...any) error { return failed })
	const want = "UPDATE x_idem SET n = 'x_idem'::regclass, (SELECT u FROM x_used, x_usage)"
	if got := none.Text(statement); err != nil || got != want {
		t.Errorf("without a schema: got %s, %v", got, err)
	}
}

// Roles are looked at until a hundred transactions kept theirs, and for ever once
// one did not, or its settlement was refused for it.
func TestRoles(t *testing.T) {
	keep := func(r *claims.Roles, n int) {
		for range n {
			r.Found(false)
		}
	}
	denied := sqlState("42501")
	var r claims.Roles
	if keep(&r, 99); !r.Watched() {
		t.Error("after 99: not watched")
	}
	if keep(&r, 1); r.Watched() {
		t.Error("after 100: watched")
	}
	if got := r.Moment(false, sqlState("25006")); got != claims.AtSettlement || r.Watched() {
		t.Errorf("another error: got %d, watched %t", got, r.Watched())
	}
	if got := r.Moment(false, denied); got != claims.AtClaim || !r.Watched() {
		t.Errorf("refused: got %d, watched %t", got, r.Watched())
	}
	if got := r.Moment(true, denied); got != claims.AtSettlement {
		t.Errorf("refused, with the role of the claim: got %d", got)
	}
	var changed claims.Roles
	changed.Found(true)
	if keep(&changed, 1000); !changed.Watched() {
		t.Error("after a role that changed: not watched")
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
