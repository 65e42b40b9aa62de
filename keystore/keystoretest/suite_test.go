package keystoretest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/.ci/leftout"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// All cases on one store, as a store over a database may be tested.
func TestMemoryShared(t *testing.T) {
	memory := keystore.NewMemory()
	leftout.Run(t, keystoretest.Suite{New: func(t *testing.T) keystore.Manager { return memory }}.Run, "Unavailable")
}

// A store that can only manage keys passes; the cases of what it lacks are
// left out.
func TestManagerAlone(t *testing.T) {
	leftout.Run(t, keystoretest.Suite{
		New: func(t *testing.T) keystore.Manager {
			return struct{ keystore.Manager }{keystore.NewMemory()}
		},
	}.Run, "Context/", "Touch/", "Usage/", "Feed/", "Audit/", "Erase/", "Unavailable")
}
