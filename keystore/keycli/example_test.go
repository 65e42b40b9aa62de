package keycli_test

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keycli"
	"github.com/sallyport-go/sallyport/scope"
)

// The command of a service with scopes, tokens and a policy of its own. Its main
// is os.Exit(keycli.Main(config)).
func ExampleMain() {
	store := keystore.NewMemory() // in earnest a database, which Open opens
	config := keycli.Config{
		Open: func(ctx context.Context, getenv func(string) string) (*keystore.Issuer, error) {
			return keystore.NewIssuer(store, keystore.IssuerOptions{
				Service: keystore.Service{Prefix: "ship", Scopes: scope.New(
					scope.Definition{Name: "parcels:read"}, scope.Definition{Name: "parcels:write"},
				)},
				Policy: keystore.Policy{MaxLife: 365 * 24 * time.Hour},
			}), nil
		},
		Stderr: os.Stdout,
	}
	for _, line := range []string{
		"issue Robot -org acme -env sandbox -scopes parcel:read -expires 90d",
		"issue Robot -org acme -env sandbox -scopes parcels:read",
	} {
		config.Args = append([]string{"ship"}, strings.Fields(line)...)
		keycli.Main(config)
	}
	// Output:
	// ship: There is no scope "parcel:read"; did you mean "parcels:read"?
	// ship: The key must expire within 365 days.
}
