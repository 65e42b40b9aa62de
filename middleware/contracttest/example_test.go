package contracttest_test

import (
	"net/http"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
)

// target describes a server. What it does not offer is named, so that nothing is
// left out in silence.
func target(h http.Handler, full, none string) contracttest.Target {
	return contracttest.Target{
		Handler: h,
		Keys:    contracttest.Keys{Full: full, None: none},
		Creates: []contracttest.Create{{
			Path: "/api/v1/tasks",
			Body: `{"title":"{{random}}"}`,
			List: "/api/v1/tasks",
		}},
		Without: []string{
			"worker", "reader", "writer", "second", "revoked", "other",
			"sandbox", "sandbox-none", "second-create", "rate-limit",
		},
	}
}

// A server of one's own in Go: its handler is checked without a port of its
// own.
func ExampleRun() {
	var newServer func() (h http.Handler, full, none string)

	_ = func(t *testing.T) { // TestContract
		contracttest.Run(t, target(newServer()))
	}
}
