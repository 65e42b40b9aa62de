package keystore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func TestIssuerShowsKeysToTheirOrganizationAlone(t *testing.T) {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.Format{Prefix: "ship"})
	g := grant()
	g.Token = "once"
	_, k := issue(t, issuer, g)
	for _, c := range []struct {
		organization string
		found        bool
	}{{"acme", true}, {"other", false}, {"", false}} {
		want := keystore.ErrNotFound
		if c.found {
			want = nil
		}
		if got, err := issuer.Key(t.Context(), c.organization, k.ID); !errors.Is(err, want) || c.found && got.ID != k.ID {
			t.Errorf("Key for %q: got %v, %v, want %v", c.organization, got, err, want)
		}
		if got, err := issuer.Issued(t.Context(), c.organization, g.Actor, "once"); !errors.Is(err, want) || c.found && got.ID != k.ID {
			t.Errorf("Issued for %q: got %v, %v, want %v", c.organization, got, err, want)
		}
		if got, err := issuer.Keys(t.Context(), c.organization, keystore.Page{}); err != nil || len(got) == 1 != c.found {
			t.Errorf("Keys for %q: got %d keys, %v", c.organization, len(got), err)
		}
	}
}

func TestMasked(t *testing.T) {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.Format{Prefix: "ship"})
	token, k := issue(t, issuer, grant())
	if got, want := issuer.Masked(k), "ship_test_…"+token[len(token)-4:]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := issuer.Masked(&keystore.Key{Environment: keystore.Production}); !strings.HasPrefix(got, "ship_live_…") {
		t.Errorf("a key without a hint: got %q", got)
	}
}

func TestCheckJudgesAsIssueDoes(t *testing.T) {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.Format{})
	g := grant()
	if err := issuer.Check(g); err != nil {
		t.Errorf("a valid grant: got %v", err)
	}
	g.Scopes, g.Environment = []scope.Name{"task:read"}, "moon"
	checked, ok := errors.AsType[*keystore.GrantError](issuer.Check(g))
	_, _, err := issuer.Issue(t.Context(), g)
	if issued, _ := errors.AsType[*keystore.GrantError](err); !ok || len(checked.Problems) != 2 || checked.Error() != issued.Error() {
		t.Errorf("got %v, want what Issue returns, %v", checked, issued)
	}
}
