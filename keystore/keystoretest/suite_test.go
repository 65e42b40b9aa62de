package keystoretest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/leftout"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// All cases on one store, as a store over a database may be tested.
func TestMemoryShared(t *testing.T) {
	memory := issuing.NewMemory()
	leftout.Run(t, keystoretest.Suite{New: func(t *testing.T) issuing.Store { return memory }}.Run, "Unavailable")
}
