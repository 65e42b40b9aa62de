package idemclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemclient"
)

// The server's first answer is lost. The second try has the same key.
func Example() {
	var tries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.Header.Get("Idempotency-Key"))
		if tries.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "parcel 1")
	}))
	defer server.Close()
	ctx, parcels := context.Background(), server.URL+"/v2/parcels"

	client := &http.Client{Transport: &idemclient.Transport{}}

	send := func(ctx context.Context, job, body string) error {
		ctx = idemclient.WithKey(ctx, job) // also when the job starts again
		r, err := http.NewRequestWithContext(ctx, "POST", parcels, strings.NewReader(body))
		if err != nil {
			return err
		}
		res, err := client.Do(r)
		if unknown, ok := errors.AsType[*idemclient.UnknownError](err); ok {
			return fmt.Errorf("run job %s again: %w", unknown.Key, err)
		}
		if err != nil {
			return err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		fmt.Printf("%s: %s\n", res.Status, answer)
		return err
	}

	if err := send(ctx, "job-4711", `{"to":"Lisbon"}`); err != nil {
		log.Print(err)
	}
	// Output:
	// POST job-4711
	// POST job-4711
	// 201 Created: parcel 1
}

// The program of the package comment is that of Example.
func TestPackageComment(t *testing.T) {
	doc, err := os.ReadFile("transport.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "//\n//\t")
	program, _, _ = strings.Cut("\t"+program, "\n//\n// ")
	program = strings.NewReplacer("\n//", "\n").Replace(program)
	if !strings.Contains(string(example), program) {
		t.Errorf("no Example has the program of the package comment:\n%s", program)
	}

	// So are the lines of the page for clients.
	page, err := os.ReadFile("../../.github/CLIENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(page), "\n```go\n")
	lines, _, _ = strings.Cut(lines, "\n```\n")
	for _, line := range strings.Split(lines, "\n") {
		if !strings.Contains(program, "\t"+line+"\n") {
			t.Errorf("the page for clients shows %q, which no Example has", line)
		}
	}
}
