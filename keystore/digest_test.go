package keystore_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestDigestOf(t *testing.T) {
	for _, token := range []string{"", "a", "svc_live_" + strings.Repeat("0", 38), strings.Repeat("a", 256),
		strings.Repeat("a", 257), strings.Repeat("a", 10_000)} {
		if got, want := keystore.DigestOf(token), keystore.Digest(sha256.Sum256([]byte(token))); got != want {
			t.Errorf("DigestOf of %d bytes = %x, want their SHA-256 %x", len(token), got, want)
		}
	}
}
