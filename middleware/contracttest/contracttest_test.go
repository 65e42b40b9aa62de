package contracttest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
)

// A server that has nothing of this module keeps every rule.
func TestBareServer(t *testing.T) {
	server := bare.New(bare.DemoKeys())
	server.Limit = 60
	contracttest.Run(t, contracttest.Target{
		Handler: server.Handler(), Listen: bare.Listen,
		Keys:     contracttest.Keys{Full: bare.Full, None: bare.None, Sandbox: bare.Sandbox, Other: bare.Other, Revoked: bare.Revoked},
		Create:   contracttest.Create{Path: bare.Create, Body: `{"title":"Call the bank"}`},
		Optional: true,
	})
}
