package contracttest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
)

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
