package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
)

// A connection that two discard at the same time is discarded, and nobody panics.
func TestDiscardAtOnce(t *testing.T) {
	db := sql.OpenDB(idle{})
	defer db.Close()
	for range 20_000 {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { discard(c) })
		}
		both.Wait()
		if err := c.PingContext(t.Context()); err != sql.ErrConnDone {
			t.Fatalf("got %v, want a connection that is discarded", err)
		}
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections are open, want none", n)
	}
}

// idle is a driver whose connections can be opened and closed.
type idle struct{}

func (i idle) Connect(context.Context) (driver.Conn, error) { return i, nil }
func (i idle) Driver() driver.Driver                        { return nil }
func (idle) Prepare(string) (driver.Stmt, error)            { return nil, errors.ErrUnsupported }
func (idle) Begin() (driver.Tx, error)                      { return nil, errors.ErrUnsupported }
func (idle) Close() error                                   { return nil }
