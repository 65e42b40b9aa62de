package keysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// A driver may report a statement that was interrupted as one that found
// nothing. A request whose client has gone must not make a key unknown.
func TestInterruptedIsNotUnknown(t *testing.T) {
	db := sql.OpenDB(interrupted{})
	defer db.Close()
	store := keysql.SQLite(db, keysql.Options{})
	for method, call := range map[string]func(context.Context) error{
		"Lookup":     func(ctx context.Context) error { _, err := store.Lookup(ctx, keystore.Digest{1}); return err },
		"Find":       func(ctx context.Context) error { _, err := store.Find(ctx, "acme", "key_1"); return err },
		"FindIssued": func(ctx context.Context) error { _, err := store.FindIssued(ctx, "acme", "user_1", "1"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("%s that was interrupted returned %v, want %v", method, err, context.DeadlineExceeded)
		}
		cancel()
		if err := call(t.Context()); err != keystore.ErrNotFound {
			t.Errorf("%s that found nothing returned %v, want %v", method, err, keystore.ErrNotFound)
		}
	}
}

// interrupted is a driver whose queries take until the context's deadline, if
// it has one, and find nothing.
type interrupted struct{}

func (i interrupted) Connect(context.Context) (driver.Conn, error) { return i, nil }
func (i interrupted) Driver() driver.Driver                        { return nil }
func (i interrupted) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (i interrupted) Close() error                                 { return nil }
func (i interrupted) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }

func (i interrupted) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	if _, ok := ctx.Deadline(); ok {
		<-ctx.Done()
	}
	return i, nil
}

func (i interrupted) Columns() []string         { return make([]string, 16) }
func (i interrupted) Next([]driver.Value) error { return io.EOF }
