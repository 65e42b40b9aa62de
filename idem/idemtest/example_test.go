package idemtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// In a store's own tests this is a Test function.
func ExampleSuite() {
	_ = func(t *testing.T) {
		idemtest.Suite{New: func(t *testing.T) idem.Store { return &idem.Memory{} }, Bubble: true}.Run(t)
	}
}

// The store claims the key and its answer is lost on the way: nothing runs, and
// the key is soon free again.
func ExampleFaulty() {
	ctx := context.Background()
	store := idemtest.NewFaulty(&idem.Memory{})
	runner := idem.NewRunner(store, idem.Options{})
	request := idem.Claim{Key: idem.NewKey("acme production", "7c0e"), Tenant: "acme production"}

	store.Next(idemtest.Begin, idemtest.LoseAnswer)
	_, execution, err := runner.Begin(ctx, request, nil)
	fmt.Println(execution != nil, errors.Is(err, idemtest.ErrInjected))

	_, execution, err = runner.Begin(ctx, request, nil)
	fmt.Println(execution != nil, err)
	// Output:
	// false true
	// true <nil>
}
