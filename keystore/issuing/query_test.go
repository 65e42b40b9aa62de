package issuing_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestKeysOfAnOrganizationAndOfAll(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	issue(t, issuer, grant())
	if page, err := issuer.Keys(t.Context(), "acme", issuing.Query{AllOrganizations: true}); err == nil {
		t.Errorf("Keys of an organization and of all returned %v, want an error", page.Keys)
	}
}
