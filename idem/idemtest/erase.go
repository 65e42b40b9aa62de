package idemtest

import (
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// ofOrganization returns a claim of an organization's, on the account of a tenant,
// or of the organization itself. owned returns one that was made.
func (e *env) ofOrganization(organization, tenant, key string) idem.Claim {
	c := e.lasting()
	c.Key, c.Tenant = idem.NewKey(organization, tenant, key), organization
	if tenant != "" {
		c.Tenant, c.Organization = tenant, organization
	}
	prefix := token.Prefix(organization)
	copy(c.Token[:], prefix[:])
	return c
}

func (e *env) owned(organization, tenant, key string) idem.Claim {
	return e.made(e.ofOrganization(organization, tenant, key))
}

var eraseRules = []rule{
	{"erase",
		"Erase of an idem.Eraser removes what an organization holds, settled or not, on whichever accounts, " +
			"frees the keys, and leaves all others.",
		func(e *env) {
			eraser, ok := e.store.(idem.Eraser)
			if !ok {
				return
			}
			var gone, kept []idem.Claim
			for i, key := range []string{"held", "done", "unknown"} {
				tenant := []string{"", "acme live", "acme test"}[i]
				gone, kept = append(gone, e.owned("acme", tenant, key)), append(kept, e.owned("other", "", key))
			}
			for _, claims := range [][]idem.Claim{gone, kept} {
				e.settle("the holder", claims[1], finished("answer"), nil)
				e.settle("the holder", claims[2], unknown, nil)
			}
			for _, want := range []int{len(gone), 0} {
				if n, err := eraser.Erase(e.ctx, "acme"); n != want || err != nil {
					e.failf("Erase: got %d, error %v, want %d", n, err, want)
				}
			}
			e.extend("a claim that was erased", gone[0], idem.ErrLost)
			e.settle("a claim that was erased", gone[0], finished("late"), idem.ErrLost)
			for _, c := range gone {
				e.mustClaim("erased", again(c), 1)
			}
			e.must("another tenant's claim", again(kept[0]), idem.InProgress)
			e.mustReplay("another tenant's reply", again(kept[1]), "answer")
			e.must("another tenant's unknown outcome", again(kept[2]), idem.Unknown)
		}},
}
