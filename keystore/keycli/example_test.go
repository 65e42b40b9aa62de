package keycli_test

import (
	"context"
	"fmt"
	"os"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keycli"
	"github.com/sallyport-go/sallyport/scope"
)

// The command of a service with a prefix and scopes of its own. A program calls
// os.Exit with the result, and leaves Args, Stdin, Stdout and Stderr out.
func ExampleMain() {
	service := keystore.Service{
		Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."}),
	}
	config := keycli.Config{
		Open: func(context.Context, func(string) string) (*issuing.Issuer, error) {
			return issuing.New(issuing.NewMemory(), issuing.Options{Service: service}), nil
		},
		Args:   []string{"keys", "issue", "Robot", "-org", "org_1", "-env", "sandbox", "-scopes", "parcels:read"},
		Stdout: os.Stdout, Stderr: os.Stdout,
	}
	fmt.Println(keycli.Main(config))
	// Output:
	// keys: -scopes: There is no scope "parcels:read".
	// 2
}
