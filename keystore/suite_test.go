package keystore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

func TestMemorySuite(t *testing.T) {
	keystoretest.Suite{
		New:         func(t *testing.T) keystore.Manager { return keystore.NewMemory() },
		Unavailable: func(t *testing.T) keystore.Manager { return noBackend{} },
	}.Run(t)
}

func TestCachedSuite(t *testing.T) {
	keystoretest.Suite{
		New: func(t *testing.T) keystore.Manager {
			return keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
		},
		Unavailable: func(t *testing.T) keystore.Manager {
			return keystore.NewCached(noBackend{}, keystore.CacheOptions{})
		},
	}.Run(t)
}

// noBackend is a store whose backend cannot be reached.
type noBackend struct{}

var errNoBackend = errors.New("connection refused")

func (noBackend) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errNoBackend
}
func (noBackend) Insert(context.Context, *keystore.Key) error { return errNoBackend }
func (noBackend) Update(context.Context, *keystore.Key) error { return errNoBackend }

func (noBackend) Find(context.Context, string, string) (*keystore.Key, error) {
	return nil, errNoBackend
}

func (noBackend) FindIssued(context.Context, string, string, string) (*keystore.Key, error) {
	return nil, errNoBackend
}

func (noBackend) List(context.Context, string, keystore.Page) ([]*keystore.Key, error) {
	return nil, errNoBackend
}
