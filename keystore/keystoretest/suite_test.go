package keystoretest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

func TestMemory(t *testing.T) {
	keystoretest.Suite{
		New:         func(t *testing.T) keystore.Manager { return keystore.NewMemory() },
		Unavailable: func(t *testing.T) keystore.Manager { return down{} },
	}.Run(t)
}

// All cases on one store, as a store over a database may be tested.
func TestMemoryShared(t *testing.T) {
	memory := keystore.NewMemory()
	keystoretest.Suite{New: func(t *testing.T) keystore.Manager { return memory }}.Run(t)
}

func TestCached(t *testing.T) {
	keystoretest.Suite{
		New: func(t *testing.T) keystore.Manager {
			return keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
		},
		Unavailable: func(t *testing.T) keystore.Manager {
			return keystore.NewCached(down{}, keystore.CacheOptions{})
		},
	}.Run(t)
}

// A store that can only manage keys passes; the cases of what it lacks are
// left out.
func TestManagerAlone(t *testing.T) {
	keystoretest.Suite{
		New: func(t *testing.T) keystore.Manager {
			return struct{ keystore.Manager }{keystore.NewMemory()}
		},
	}.Run(t)
}

// down is a store whose backend cannot be reached.
type down struct{}

var errDown = errors.New("connection refused")

func (down) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errDown }
func (down) Insert(context.Context, *keystore.Key) error                    { return errDown }
func (down) Update(context.Context, *keystore.Key) error                    { return errDown }

func (down) Find(context.Context, string, string) (*keystore.Key, error) { return nil, errDown }

func (down) FindIssued(context.Context, string, string, string) (*keystore.Key, error) {
	return nil, errDown
}

func (down) List(context.Context, string, keystore.Page) ([]*keystore.Key, error) {
	return nil, errDown
}
