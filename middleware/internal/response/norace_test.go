//go:build !race

package response_test

import (
	"net/http/httptest"
	"testing"
)

// TestWrapAllocations: no form of the writer allocates.
func TestWrapAllocations(t *testing.T) {
	x := newWriter(httptest.NewRequest("GET", "/", nil))
	for _, tt := range writers {
		w := tt.make(&bare{})
		if got := testing.AllocsPerRun(200, func() { x.Wrap(w) }); got != 0 {
			t.Errorf("%q: got %v allocations", tt.has, got)
		}
	}
}
