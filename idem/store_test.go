package idem_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

func TestStateString(t *testing.T) {
	for value, want := range map[idem.State]string{
		idem.Claimed: "claimed", idem.InProgress: "in progress", idem.Done: "done", idem.Unknown: "unknown",
		idem.State(0): "State(0)", idem.State(5): "State(5)",
	} {
		if got := value.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
