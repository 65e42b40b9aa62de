package ratelimitredis_test

import (
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// A client that was denied is admitted after a Reset, although its denial is
// remembered. A Redis that cannot be reached is an error.
func TestReset(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	store := patientStore(t, client)
	charge := ratelimit.Charge{Policy: policy(1, time.Hour), Bucket: "b", Cost: 1}
	for _, want := range []bool{true, false, false} {
		if d := take(t, store, charge); d.Allowed != want {
			t.Fatalf("got %t, want %t", d.Allowed, want)
		}
	}
	if err := store.Reset(t.Context(), []ratelimit.Charge{charge}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, store, charge); !d.Allowed {
		t.Error("still denied after Reset")
	}
	if err := store.Reset(t.Context(), nil); err != nil {
		t.Errorf("no charges: got %v", err)
	}
	store = ratelimitredis.New(refused(t), ratelimitredis.Options{})
	if err := store.Reset(t.Context(), []ratelimit.Charge{charge}); err == nil {
		t.Error("no error from a Redis that refuses connections")
	}
}
