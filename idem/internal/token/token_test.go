package token_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// Stores hold tokens with this prefix.
func TestPrefixStays(t *testing.T) {
	for _, organization := range []string{"", "acme", string(make([]byte, 300))} {
		key := idem.NewKey("the owner of a claim", organization)
		if got, want := token.Prefix(organization), [8]byte(key[:]); got != want {
			t.Errorf("%q: got %x, want %x", organization, got, want)
		}
	}
}
