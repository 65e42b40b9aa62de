// Package keystoretest checks that a store of keys keeps the contract of
// package keystore.
package keystoretest

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// A Suite checks one implementation of [keystore.Manager].
type Suite struct {
	// New returns a store that is ready to use. It is called once per case;
	// the store may be shared, since each case uses organizations of its own.
	New func(t *testing.T) keystore.Manager
}

// Run runs the cases as subtests of t.
func (s Suite) Run(t *testing.T) {}
