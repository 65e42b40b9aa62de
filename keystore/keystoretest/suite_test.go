package keystoretest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// All cases on one store, as a store over a database may be tested.
func TestMemoryShared(t *testing.T) {
	memory := keystore.NewMemory()
	keystoretest.Suite{New: func(t *testing.T) keystore.Manager { return memory }}.Run(t)
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
