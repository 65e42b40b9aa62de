// Package keystoretest checks that a store of keys keeps the contracts of
// packages keystore and issuing. A store's own tests need one function:
//
//	func TestStore(t *testing.T) {
//		keystoretest.Suite{
//			New: func(t *testing.T) issuing.Store { return mystore.New(database(t)) },
//		}.Run(t)
//	}
//
// Each rule is a subtest with a name that does not change, such as
// Insert/IssueTokenRace, so that a store which cannot keep one can leave it out
// with go test -skip and say so.
package keystoretest

import (
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A Suite checks one implementation of [issuing.Store]. The cases use real time
// and do not run in parallel.
type Suite struct {
	// New returns a store that is ready to use. It is called once for each
	// case, and may return the same store or one that holds other keys: each
	// case has organizations, ids and digests of its own. What it starts it
	// ends with t.Cleanup.
	New func(t *testing.T) issuing.Store

	// Unavailable returns a store whose backend cannot be reached. The case
	// that needs it is left out when it is nil.
	Unavailable func(t *testing.T) issuing.Store
}

// Run runs every case as a subtest of t.
func (s Suite) Run(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(test{t, s.New(t)}) })
	}
	t.Run(unavailable.name, func(t *testing.T) {
		if s.Unavailable == nil {
			t.Skip("Suite.Unavailable is not set")
		}
		unavailable.run(test{t, s.Unavailable(t)})
	})
}

// A testCase is one rule.
type testCase struct {
	name string
	run  func(t test)
}

// A test is a run of a case on a store. It has a TB, so that the tests of this
// package can watch it fail.
type test struct {
	testing.TB
	issuing.Store
}

func cases() []testCase {
	return slices.Concat(lookupCases, insertCases, textCases, findCases, listCases, updateCases, contextCases, touchCases,
		usageCases, feedCases, auditCases, childCases)
}
