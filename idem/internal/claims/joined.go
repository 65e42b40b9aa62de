package claims

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/bounded"
)

// stall is how long a joined request runs before it is asked whether it waits
// for itself.
const stall = time.Second

// Watch logs a handler that seems to wait for itself: it holds one connection,
// and waits says that all others are in use and something waits for one more.
func Watch(ctx context.Context, logger *slog.Logger, key idem.Key, waits func() bool) *time.Timer {
	return time.AfterFunc(stall, func() {
		if waits() {
			logger.WarnContext(ctx, "a joined request holds its transaction for long while the pool has no connection left; "+
				"a handler that uses the pool in place of its transaction may be waiting for itself",
				"idempotency_key", name(key), "after", stall)
		}
	})
}

// Ended logs, and returns as an error, that a transaction was not there any more
// when its reply was to be saved.
func Ended(ctx context.Context, logger *slog.Logger, key idem.Key) error {
	logger.ErrorContext(ctx,
		"a handler ended the transaction of its request, or overlooked a deadlock of MySQL that did; "+
			"what it wrote may stand without the reply", "idempotency_key", name(key))
	return fmt.Errorf("settle: the transaction ended before its reply was saved: %w", idem.ErrCommitUnknown)
}

// name is what logs say of the key: enough to find it in the table.
func name(key idem.Key) string { return hex.EncodeToString(key[:8]) }

// notMigrated finds a table or a column that is missing.
var notMigrated = regexp.MustCompile("42P01|42703|42S02|42S22|no such (table|column)|no column named").MatchString

// CallError returns the error of a statement as the caller gets it.
func CallError(ctx context.Context, doing string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case ended != nil && !errors.Is(err, ended):
		// Each driver has its own words for a statement that was interrupted,
		// and "no rows" is among them.
		return fmt.Errorf("%s: %w (%v)", doing, ended, err)
	case err == idem.ErrLost, err == idem.ErrSettled:
		return err
	case notMigrated(err.Error()):
		return fmt.Errorf("%s: %w; call Migrate", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Await calls do in a goroutine and returns when ctx ends, which not every
// driver does: SQLite waits for the file's lock for its busy_timeout. What do
// returns after that goes to late, unless late is nil.
func Await[T any](ctx context.Context, doing string, do func() (T, error), late func(T)) (T, error) {
	r, later := bounded.Call(ctx, func() (T, error) { return repeated(ctx, do) })
	if later != nil && late != nil {
		go func() {
			if r := <-later; r.Err == nil {
				late(r.Value)
			}
		}()
	}
	return r.Value, CallError(ctx, doing, r.Err)
}
