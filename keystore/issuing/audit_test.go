package issuing_test

import (
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An erasure is told with what it has removed.
func TestAuditOfAnErasure(t *testing.T) {
	issuer, told := audited(t, issuing.NewMemory(), issuing.Options{})
	_, k := issue(t, issuer, grant())
	if _, err := issuer.By("ada", issuing.ReasonLeaked).Revoke(t.Context(), "acme", k.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := issuer.By("ada", "left us").Erase(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	e := (*told)[len(*told)-1]
	got := fmt.Sprintf("%s by %s of %s%s: %s %v", e.Act, e.Actor, e.Organization, e.Key, e.Reason, e.Changes)
	if want := "erase by ada of acme: left us [{keys 1 0} {entries 2 0}]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
