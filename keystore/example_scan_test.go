package keystore_test

import (
	"fmt"

	"github.com/sallyport-go/sallyport/keystore"
)

// What to put into .gitleaks.toml, so that a leaked key is found before others
// find it.
func ExampleService_ScanRule() {
	fmt.Print(keystore.Service{Prefix: "acme"}.ScanRule().Gitleaks)
	// Output:
	// [[rules]]
	// id = "acme-api-key"
	// description = "acme secret API key"
	// regex = '''\bacme_(?:live|test)_[0-9A-Za-z]{38}\b'''
	// entropy = 3
	// keywords = ["acme_live_", "acme_test_"]
}
