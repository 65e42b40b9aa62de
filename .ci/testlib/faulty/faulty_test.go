package faulty_test

import (
	"errors"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A call that is chosen fails, and the others are made.
func TestAt(t *testing.T) {
	down := errors.New("down")
	s := &faulty.Store{Store: issuing.NewMemory(), Before: faulty.At("Erase", down)}
	if _, _, err := s.Erase(t.Context(), "acme", nil); err != down {
		t.Errorf("Erase: got %v, want %v", err, down)
	}
	if _, err := s.List(t.Context(), "acme", issuing.Query{}); err != nil {
		t.Errorf("List: got %v", err)
	}
}
