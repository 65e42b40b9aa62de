package keystoretest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/.ci/leftout"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// All cases on one store, as a store over a database may be tested.
func TestMemoryShared(t *testing.T) {
	memory := issuing.NewMemory()
	leftout.Run(t, keystoretest.Suite{New: func(t *testing.T) issuing.Manager { return memory }}.Run, "Unavailable")
}

// A store that can only manage keys passes; the cases of what it lacks are
// left out.
func TestManagerAlone(t *testing.T) {
	leftout.Run(t, keystoretest.Suite{
		New: func(t *testing.T) issuing.Manager {
			return struct{ issuing.Manager }{issuing.NewMemory()}
		},
	}.Run, "Context/", "Touch/", "Usage/", "Feed/", "Audit/", "Erase/", "Unavailable")
}
