package contracttest_test

import (
	"net/http"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
)

// A server of one's own in Go: its handler is checked without a port of its
// own. What it does not offer is named, so that nothing is left out in
// silence.
func ExampleRun() {
	newServer := func() (h http.Handler, full, none string) { return nil, "", "" }

	_ = func(t *testing.T) { // TestContract
		h, full, none := newServer()
		contracttest.Run(t, contracttest.Target{
			Handler: h,
			Keys:    contracttest.Keys{Full: full, None: none},
			Creates: []contracttest.Create{{
				Path: "/api/v1/tasks",
				Body: `{"title":"{{random}}"}`,
				List: "/api/v1/tasks?limit=1000",
			}},
			Without: []string{
				"worker", "reader", "writer", "second", "revoked", "other",
				"sandbox", "sandbox-none", "second-create", "rate-limit",
			},
		})
	}
}

// A server in another language, which a test starts or a deployment runs.
func ExampleRun_url() {
	_ = func(t *testing.T) { // TestStaging
		contracttest.Run(t, contracttest.Target{
			URL:  "https://staging.example.com",
			Keys: contracttest.Keys{Full: "svc_live_…", None: "svc_live_…", Other: "svc_live_…"},
			Without: []string{
				"worker", "reader", "writer", "second", "revoked",
				"sandbox", "sandbox-none", "create", "second-create", "list", "rate-limit",
			},
		})
	}
}
