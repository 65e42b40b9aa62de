// Package keystoretest checks that a store of keys keeps the contracts of
// packages keystore and issuing. A store's own tests need one function:
//
//	func TestStore(t *testing.T) {
//		keystoretest.Suite{
//			New: func(t *testing.T) issuing.Manager { return mystore.New(database(t)) },
//		}.Run(t)
//	}
//
// Each rule is a subtest with a name that does not change, such as
// Insert/IssueTokenRace, so that a store which cannot keep one can leave it out
// with go test -skip and say so.
package keystoretest

import (
	"errors"
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A Suite checks one implementation of [issuing.Manager], and of
// [keystore.Toucher], [issuing.UsageReader], [keystore.Feed] and
// [issuing.Auditor] when the store is that too. The cases use real time and do
// not run in parallel.
type Suite struct {
	// New returns a store that is ready to use. It is called once for each
	// case, and may return the same store or one that holds other keys: each
	// case has organizations, ids and digests of its own. What it starts it
	// ends with t.Cleanup.
	New func(t *testing.T) issuing.Manager

	// Unavailable returns a store whose backend cannot be reached. The case
	// that needs it is left out when it is nil.
	Unavailable func(t *testing.T) issuing.Manager
}

// Run runs every case as a subtest of t.
func (s Suite) Run(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, s.New(t)) })
	}
	t.Run(unavailable.name, func(t *testing.T) {
		if s.Unavailable == nil {
			t.Skip("Suite.Unavailable is not set")
		}
		unavailable.run(t, s.Unavailable(t))
	})
}

// A testCase is one rule. It takes a TB, so that the tests of this package can
// watch it fail.
type testCase struct {
	name string
	run  func(t testing.TB, m issuing.Manager)
}

func cases() []testCase {
	return slices.Concat(lookupCases, insertCases, textCases, findCases, listCases, updateCases, contextCases, touchCases,
		usageCases, feedCases, auditCases, childCases)
}

// toucher returns m as a Toucher and ends the case when it is none.
func toucher(t testing.TB, m issuing.Manager) keystore.Toucher {
	t.Helper()
	store, ok := m.(keystore.Toucher)
	if !ok || errors.Is(store.Touch(t.Context(), nil), errors.ErrUnsupported) {
		t.Skipf("%T is not a keystore.Toucher", m)
	}
	return store
}

// feed returns m as a Feed and ends the case when it is none.
func feed(t testing.TB, m issuing.Manager) keystore.Feed {
	t.Helper()
	store, ok := m.(keystore.Feed)
	if ok {
		_, _, err := store.Changes(t.Context(), "")
		ok = !errors.Is(err, errors.ErrUnsupported)
	}
	if !ok {
		t.Skipf("%T is not a keystore.Feed", m)
	}
	return store
}
