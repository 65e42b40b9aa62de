package idemsql_test

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

var errRefused = errors.New("the statement was refused")

// Each statement and row of each call fails once. That is the error of the call and no
// refusal, no connection stays in use, and a transaction leaves nothing. What
// else servers do when it happens is tried in .dbtest/adapters.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqlite", "postgres", "mariadb"} {
		beside(t, name, func(t *testing.T) {
			d := kinds[name](t)
			plain := d.open(t)
			whole := d.on(plain, idemsql.Options{})
			var step, fails int
			var failed string
			db := d.watched(t, func(ctx context.Context, c driver.Conn, statement string) error {
				if d.name == "sqlite" && statement != "BEGIN" && ctx.Done() != nil {
					t.Errorf("SQLite may be interrupted in %q", statement)
				}
				if step++; step != fails {
					return nil
				}
				failed = statement
				if d.name == "postgres" && failed == "COMMIT" { // as the server does with what it refuses
					c.(driver.ExecerContext).ExecContext(ctx, "ROLLBACK", nil)
				}
				return errRefused
			})
			store := d.on(db, keepsAll)
			claims := 0
			for _, call := range slices.Sorted(maps.Keys(breakable)) {
				for fails = 1; ; fails++ {
					claims++
					c, done := ofAcme(strconv.Itoa(claims)), ofAcme("done "+strconv.Itoa(claims))
					if _, err := whole.Erase(t.Context(), "acme"); err != nil { // each row that is read may fail
						t.Fatal(err)
					}
					begin(t, whole, done, idem.Claimed)
					mustSettle(t, whole, done, finished("answer"))
					ctx, cancel := context.WithCancel(t.Context())
					step, failed = 0, ""
					rows := count(t, plain, "SELECT count(*) FROM tasks")
					err := breakable[call](ctx, store, c, done)
					cancel()
					mustBeIdle(t, db)
					if step < fails {
						if err != nil || fails == 1 {
							t.Errorf("%s: got %v after %d statements, want nil and a statement", call, err, step)
						}
						break
					}
					// What goes wrong only after the answer is known costs the connection.
					silent := failed == "ROLLBACK" && call != "a failure" || strings.HasPrefix(failed, "SET autocommit = 1")
					if !errors.Is(err, errRefused) && !silent {
						t.Errorf("%s, where %q fails: got %v, want its error", call, failed, err)
					}
					if !silent {
						mustCount(t, plain, "SELECT count(*) FROM tasks", rows)
					}
				}
			}
		})
	}
}

// breakable are calls that succeed if nothing breaks. One that joins has a claim
// of a new key and writes a row.
var breakable = map[string]func(ctx context.Context, s store, c, done idem.Claim) error{
	"Begin": func(ctx context.Context, s store, c, _ idem.Claim) error { _, err := s.Begin(ctx, c); return err },
	"Begin, done": func(ctx context.Context, s store, _, c idem.Claim) error {
		_, err := s.Begin(ctx, again(c))
		return err
	},
	"Join, done": func(ctx context.Context, s store, _, c idem.Claim) error {
		_, _, err := s.Join(ctx, again(c), 0)
		return err
	},
	"Join, lapsed": func(ctx context.Context, s store, c, _ idem.Claim) error {
		c.Lease = time.Millisecond
		if _, err := s.Begin(ctx, c); err != nil {
			return err
		}
		time.Sleep(2 * c.Lease)
		_, _, err := s.Join(ctx, again(c), 0)
		return err
	},
	"Erase": func(ctx context.Context, s store, _, _ idem.Claim) error {
		_, err := s.Erase(ctx, "acme")
		return err
	},
	"Erase, charged": func(ctx context.Context, s store, c, _ idem.Claim) error {
		c.Account, c.Units = idem.NewAccount("acme"), 5
		if _, err := s.Begin(ctx, c); err != nil {
			return err
		}
		if err := s.Settle(ctx, c.Key, c.Token, using(7, finished("answer"))); err != nil {
			return err
		}
		_, err := s.Erase(ctx, "acme")
		return err
	},
	"Count": func(ctx context.Context, s store, _, _ idem.Claim) error {
		return s.Count(ctx, idem.NewAccount("acme"), 5)
	},
	"Used": func(ctx context.Context, s store, _, _ idem.Claim) error {
		_, _, err := s.Used(ctx, idem.NewAccount("acme"), time.Time{})
		return err
	},
	"Charges": func(ctx context.Context, s store, _, _ idem.Claim) error {
		_, err := s.Charges(ctx, 10)
		return err
	},
	"Uncertain": func(ctx context.Context, s store, _, _ idem.Claim) error {
		_, err := s.Uncertain(ctx, 10)
		return err
	},
	"Acknowledge":   func(ctx context.Context, s store, _, _ idem.Claim) error { return s.Acknowledge(ctx, 0) },
	"Settle, again": settling(finished("answer"), nil),
	"Settle, other": settling(finished("other"), idem.ErrSettled),
	"Settle, freed": settling(outcomeFree, idem.ErrSettled),
	"Extend, lost": func(ctx context.Context, s store, _, c idem.Claim) error {
		return unless(idem.ErrLost, s.Extend(ctx, c.Key, c.Token, time.Minute))
	},
	"a row":     joining(finished("answer")),
	"a refusal": joining(idem.Settlement{Outcome: idem.OutcomeDone, RollBack: true, Retention: time.Hour}),
	"a failure": joining(outcomeFree),
}

func settling(s idem.Settlement, want error) func(context.Context, store, idem.Claim, idem.Claim) error {
	return func(ctx context.Context, store store, _, c idem.Claim) error {
		return unless(want, store.Settle(ctx, c.Key, c.Token, s))
	}
}

func unless(want, err error) error {
	if want != nil && err == want {
		return nil
	}
	return err
}

func joining(s idem.Settlement) func(context.Context, store, idem.Claim, idem.Claim) error {
	return func(ctx context.Context, store store, c, _ idem.Claim) error {
		_, j, err := store.Join(ctx, c, time.Minute)
		if err != nil {
			return err
		}
		tx, _ := inTx(j.Context(ctx))
		row := "INSERT INTO tasks (id, title) VALUES ('" + hex.EncodeToString(c.Key[:]) + "', 'of a handler')"
		if _, err := tx.ExecContext(context.WithoutCancel(ctx), row); err != nil {
			return errors.Join(err, j.Settle(ctx, outcomeFree))
		}
		return j.Settle(ctx, s)
	}
}
