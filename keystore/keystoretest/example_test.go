package keystoretest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// In a store's own tests this is a Test function.
func ExampleSuite() {
	_ = func(t *testing.T) {
		keystoretest.Suite{
			New: func(t *testing.T) issuing.Store { return issuing.NewMemory() },
		}.Run(t)
	}
}
