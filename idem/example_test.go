package idem_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A request is run once. Its repeat gets the answer of the first, and another
// request with the same key gets none.
func Example() {
	runner := idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})

	create := func(key, body string) {
		ctx := context.Background()
		record, execution, err := runner.Begin(ctx, idem.Request{
			Key:         idem.NewKey("acme production", key),
			Owner:       "acme production",
			Fingerprint: sha256.Sum256([]byte("POST /api/v1/tasks " + body)),
		})
		switch {
		case errors.Is(err, idem.ErrMismatch):
			fmt.Println("this key was used for another request")
		case err != nil:
			fmt.Println("try again later:", err)
		case execution != nil:
			answer := "created task 1: " + body
			if err := execution.Settle(ctx, idem.Settlement{Outcome: idem.Finished, Payload: []byte(answer)}); err != nil {
				fmt.Println("not saved:", err)
			}
			fmt.Println(answer)
		default:
			fmt.Printf("%v: %s\n", record.State, record.Payload)
		}
	}

	create("7c0e", `{"title":"Call back"}`)
	create("7c0e", `{"title":"Call back"}`)
	create("7c0e", `{"title":"Write to"}`)
	// Output:
	// created task 1: {"title":"Call back"}
	// done: created task 1: {"title":"Call back"}
	// this key was used for another request
}

// A request that was refused before it did anything frees its key.
func ExampleExecution_Settle() {
	ctx := context.Background()
	runner := idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})
	request := idem.Request{Key: idem.NewKey("acme production", "7c0e"), Owner: "acme production"}

	_, execution, _ := runner.Begin(ctx, request)
	fmt.Println(execution.Settle(ctx, idem.Settlement{Outcome: idem.NotStarted}))

	_, execution, _ = runner.Begin(ctx, request)
	fmt.Println(execution != nil)
	// Output:
	// <nil>
	// true
}

// At the end of a shutdown, when the server has no requests left, what is not
// yet saved gets a little more time.
func ExampleRunner_WaitSettled() {
	draining := make(chan struct{}) // close it when the shutdown begins: those who wait for others are then sent away
	runner := idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{Draining: draining})

	close(draining)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(runner.WaitSettled(ctx))
	// Output: <nil>
}
