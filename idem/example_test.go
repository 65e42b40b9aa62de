package idem_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A request is run once. Its repeat gets the answer of the first, and another
// request with the same key gets none.
func Example() {
	ctx := context.Background()
	runner := idem.NewRunner(&idem.Memory{}, idem.Options{})

	create := func(key, body string) (string, error) {
		record, execution, err := runner.Begin(ctx, idem.Claim{
			Key:         idem.NewKey("acme production", key),
			Tenant:      "acme production",
			Fingerprint: sha256.Sum256([]byte(body)),
		}, nil)
		switch {
		case err != nil: // ErrMismatch is the client's mistake; after any other it may try again
			return "", err
		case execution == nil && record.State == idem.Done: // a repeat
			return string(record.Payload), nil
		case execution == nil: // a repeat of what has not ended, or whose outcome is lost
			return "", fmt.Errorf("the first request is %v", record.State)
		}
		defer execution.Settle(ctx, idem.Settlement{}) // after a panic; it does nothing once it is settled
		reply := "created: " + body
		return reply, execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(reply)})
	}

	fmt.Println(create("7c0e", `{"title":"Call back"}`))
	fmt.Println(create("7c0e", `{"title":"Call back"}`))
	fmt.Println(create("7c0e", `{"title":"Write to"}`))
	// Output:
	// created: {"title":"Call back"} <nil>
	// created: {"title":"Call back"} <nil>
	//  idem: the key was used for another request
}

func ExampleParseSeal() {
	store := new(idem.Memory) // or one of a database

	seal, err := idem.ParseSeal(os.Getenv("SEAL_KEYS")) // keys of `openssl rand -base64 32`, separated by commas
	if err != nil {
		log.Fatal(err)
	}
	runner := idem.NewRunner(store, idem.Options{Seal: seal})
	_ = runner // the Runner of middleware.IdempotencyOptions
}

// The programs of the package comment are those of Example and Example_units.
func TestPackageComment(t *testing.T) {
	var files [3]string
	for i, name := range []string{"doc.go", "example_test.go", "units_example_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = string(text)
	}
	rest := files[0]
	for _, example := range files[1:] {
		var program string
		_, program, _ = strings.Cut(rest, "//\n//\t")
		program, rest, _ = strings.Cut("\t"+program, "\n//\n// ")
		program = strings.ReplaceAll(program, "\n//", "\n")
		if program == "\t" || !strings.Contains(example, program) {
			t.Errorf("no Example has the program of the package comment:\n%s", program)
		}
	}
}

// A request that was refused before it did anything frees its key.
func ExampleExecution_Settle() {
	ctx := context.Background()
	runner := idem.NewRunner(&idem.Memory{}, idem.Options{})
	request := idem.Claim{Key: idem.NewKey("acme production", "7c0e"), Tenant: "acme production"}

	_, execution, _ := runner.Begin(ctx, request, nil)
	fmt.Println(execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeFree}))

	_, execution, _ = runner.Begin(ctx, request, nil)
	fmt.Println(execution != nil)
	// Output:
	// <nil>
	// true
}

// At the end of a shutdown, when the server has no requests left, what is not
// yet saved gets a little more time.
func ExampleRunner_WaitSettled() {
	draining := make(chan struct{}) // close it when the shutdown begins: those who wait for others are then sent away
	runner := idem.NewRunner(&idem.Memory{}, idem.Options{Draining: draining})

	close(draining)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(runner.WaitSettled(ctx))
	// Output: <nil>
}
