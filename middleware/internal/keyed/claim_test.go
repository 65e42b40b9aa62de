package keyed

import "testing"

func TestClaimOf(t *testing.T) {
	c := new(Claim)
	if got := ClaimOf(WithClaim(t.Context(), c)); got != c {
		t.Errorf("got %v, want %v", got, c)
	}
	if got := ClaimOf(t.Context()); got != nil {
		t.Errorf("got %v without WithClaim", got)
	}
}
