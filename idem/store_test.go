package idem_test

import (
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

func TestStrings(t *testing.T) {
	for value, want := range map[fmt.Stringer]string{
		idem.Claimed: "claimed", idem.InFlight: "in flight", idem.Done: "done", idem.Unknown: "unknown",
		idem.State(0): "State(0)", idem.State(5): "State(5)",
		idem.OutcomeUnknown: "outcome unknown", idem.Finished: "finished", idem.NotStarted: "not started",
		idem.Outcome(3): "Outcome(3)",
	} {
		if got := value.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
