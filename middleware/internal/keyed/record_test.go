package keyed

import "testing"

// TestKeep: what is recorded of a stream takes no more memory than is held for
// it.
func TestKeep(t *testing.T) {
	w := &writer{q: &Request{Stage: &Stage{MaxResponse: 100}, Body: Body{from: &Bodies{Max: 1000}}}}
	w.record, w.bodyAt = make([]byte, 10), 10
	why := ""
	for why == "" {
		if why = w.keep(make([]byte, 7)); cap(w.record) != int(w.q.Body.more) {
			t.Errorf("%d bytes are held for %d", w.q.Body.more, cap(w.record))
		}
	}
	if why != overLimit || len(w.body()) != 98 {
		t.Errorf("%d bytes are kept, then none: %s", len(w.body()), why)
	}
}
