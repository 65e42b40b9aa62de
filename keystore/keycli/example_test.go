package keycli_test

import (
	"context"
	"crypto/sha256"
	"fmt"
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

// Keys of an older system, of which only SHA-256 hashes are known, from a file
// with a line of JSON for each.
func ExampleMain_import() {
	service := keystore.Service{
		Prefix: "ship",
		Scopes: scope.New(scope.Definition{Name: "parcels:read", Meaning: "See parcels."}),
		Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}, // see Digests for hashes other than SHA-256
	}
	store := keystore.NewMemory() // in earnest keysql, which Open opens
	config := keycli.Config{
		Open: func(ctx context.Context, getenv func(string) string) (*keystore.Issuer, error) {
			return keystore.NewIssuer(store, keystore.IssuerOptions{Service: service}), nil
		},
		Stderr: os.Stdout,
	}
	const token = "old_0123456789abcdef" // what a client holds
	file := fmt.Sprintf(`{"id":"17","organization":"acme","environment":"production","name":"Robot","scopes":["parcels:read"],
		"created_at":"2024-02-29T12:00:00Z","legacy":"v1","digest":"%x","hint":"cdef"}`, sha256.Sum256([]byte(token)))

	for _, run := range []struct{ input, command string }{
		{file, "import"}, {file, "import"}, {token, "verify -scope parcels:read"},
	} {
		config.Args, config.Stdin = append([]string{"ship"}, strings.Fields(run.command)...), strings.NewReader(run.input)
		keycli.Main(config)
	}
	// Output:
	// 1 keys were imported, 0 were there already
	// 0 keys were imported, 1 were there already
	// ORGANIZATION  ID  NAME   ENVIRONMENT  KEY        STATUS  EXPIRES  LAST USED  SCOPES
	// acme          17  Robot  production   old_…cdef  active  -        -          parcels:read
}
