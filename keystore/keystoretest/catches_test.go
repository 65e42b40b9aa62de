package keystoretest_test

import (
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// A defect is a rule that a broken store does not keep, and the cases that
// notice.
type defect struct {
	name  string
	fails []string // the cases that notice
	store func(b *broken)
}

// Each store breaks one rule, and each case of the suite has at least one store
// that it fails.
func TestSuiteCatches(t *testing.T) {
	caught := make(map[string]bool)
	for _, b := range slices.Concat(brokenReads, brokenWrites, brokenUsage, brokenAudits, brokenChildren) {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.fails {
				messages := keystoretest.Failures(t, name, breakStore(b.store))
				if len(messages) == 0 {
					t.Errorf("case %s passed on a store that %s", name, b.name)
				}
				caught[name] = true
			}
		})
	}
	for _, name := range keystoretest.Names() {
		if !caught[name] {
			t.Errorf("no broken store shows what case %s is for", name)
		}
	}
}
