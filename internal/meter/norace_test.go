//go:build !race

package meter_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/meter"
)

// A Hold that needs no read is one allocation, and its End none.
func TestAllocations(t *testing.T) {
	m, ctx := meter.New(&store{}), t.Context()
	one := limit(monthly(1 << 40))
	three := append(one, meter.Limit{apiKey, monthly(1 << 40)}, meter.Limit{idem.NewAccount("route"), monthly(1 << 40)})
	for _, limits := range [][]meter.Limit{one, three} {
		if n := testing.AllocsPerRun(1000, func() {
			h, _, _ := m.Hold(ctx, 5, limits)
			h.End(5)
		}); n > 1 {
			t.Errorf("%d limits: %v allocations, want 1", len(limits), n)
		}
	}
}

func BenchmarkHold(b *testing.B) {
	m, limits := meter.New(&store{}), limit(monthly(1<<40))
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		h, _, _ := m.Hold(ctx, 5, limits)
		h.End(0)
	}
}
