package keystore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// The limit of a key is what its own record says, or that of its plan. A
// function of this kind chooses the policy of each request: limitOf is called
// with the key of the principal.
func ExampleKey_attributes() {
	plans := map[string]string{"free": "60-M", "pro": "100-S"}
	limitOf := func(k *keystore.Key) (ratelimit.Limit, error) {
		text := k.Attributes["limit"]
		if text == "" {
			text = plans[k.Attributes["plan"]]
		}
		return ratelimit.Parse(text) // an unknown plan is an error, and not no limit
	}

	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{})
	for _, attributes := range []map[string]string{{"plan": "pro"}, {"plan": "free", "limit": "500-M"}, {"plan": "gold"}} {
		_, key, err := issuer.Issue(context.Background(), keystore.Grant{
			Organization: "acme", Environment: keystore.Production, Attributes: attributes,
		})
		if err != nil {
			log.Fatal(err)
		}
		limit, err := limitOf(key)
		fmt.Println(limit.Count, limit.Period, err != nil)
	}
	// Output:
	// 100 1s false
	// 500 1m0s false
	// 0 0s true
}
