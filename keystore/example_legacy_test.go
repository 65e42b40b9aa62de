package keystore_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log"
	"regexp"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A service that issued acme_ and 40 hexadecimal digits, and kept an
// HMAC-SHA256 of each token, changes over. Its clients go on with their keys.
func Example_legacyKeys() {
	ctx := context.Background()
	newPepper, oldPepper := []byte("the pepper of this year"), []byte("the pepper of last year")
	service := keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name:    "v1",
		Prefix:  "acme_",
		Match:   regexp.MustCompile("^acme_[0-9a-f]{40}$").MatchString,
		Digests: keystore.HMACDigests(newPepper, oldPepper),
	}}}
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Service: service})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})

	// A row of the old table has the hash and not the token.
	token := "acme_" + strings.Repeat("0123456789", 4)
	var row struct{ hash keystore.Digest }
	h := hmac.New(sha256.New, oldPepper)
	h.Write([]byte(token))
	h.Sum(row.hash[:0])

	key, err := issuer.Import(ctx, &keystore.Key{
		Organization: "acme", Environment: keystore.Production, Name: "Nightly import", Scopes: []scope.Name{scope.TasksRead},
		Digest: row.hash, Legacy: "v1", Hint: "6789",
	}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(issuer.Masked(key), key.Legacy)

	// What happens to the token of a request.
	presented, err := service.Parse(token)
	if err != nil {
		log.Fatal(err)
	}
	found, err := presented.Lookup(ctx, keys)
	fmt.Println(found.Name, err)

	// A rotation makes a key of the present shape.
	secret, next, err := issuer.Rotate(ctx, "acme", key.ID, "ada", 0, "")
	fmt.Println(secret.Reveal()[:9], next.Legacy == "", err)
	// Output:
	// acme_…6789 v1
	// Nightly import <nil>
	// svc_live_ true <nil>
}
