package issuing_test

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A key has its attributes and networks in one form, however they were given.
func TestKeyIsBroughtIntoForm(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	for _, c := range []struct{ given, want map[string]string }{
		{nil, nil},
		{map[string]string{}, nil},
		{map[string]string{"b": ""}, nil},
		{map[string]string{"b": "", "plan": "pro"}, map[string]string{"plan": "pro"}},
	} {
		g := grant()
		g.Attributes = c.given
		if _, k := issue(t, issuer, g); !maps.Equal(k.Attributes, c.want) || c.want == nil && k.Attributes != nil {
			t.Errorf("the attributes %v became %v, want %v", c.given, k.Attributes, c.want)
		}
	}
	for _, c := range []struct{ given, want []netip.Prefix }{
		{nil, nil},
		{[]netip.Prefix{}, nil},
		{prefixes("10.1.2.3/8", "10.0.0.0/8", "192.0.2.7/32"), prefixes("10.0.0.0/8", "192.0.2.7/32")},
		{prefixes("::ffff:10.1.2.3/104"), prefixes("10.0.0.0/8")},
		{prefixes("::ffff:10.1.2.3/96"), prefixes("0.0.0.0/0")},
	} {
		g := grant()
		g.Networks = c.given
		if _, k := issue(t, issuer, g); !slices.Equal(k.Networks, c.want) || c.want == nil && k.Networks != nil {
			t.Errorf("the networks %v became %v, want %v", c.given, k.Networks, c.want)
		}
	}
}

// Of a key that is there already Issue takes what its owner has chosen, and
// nothing of its life.
func TestIssueOneLikeAnother(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	of := grant()
	of.Attributes, of.Networks = map[string]string{"plan": "pro"}, prefixes("10.0.0.0/8")
	of.ExpiresAt = time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	_, first := issue(t, issuer, of)
	of.ID, of.Digest, of.Hint, of.Legacy, of.RotatedFrom, of.Version = "x", keystore.DigestOf("x"), "x", "v1", "key_0", 9
	of.CreatedAt, of.RevokedAt, of.LastUsedAt, of.Suspended = of.ExpiresAt, of.ExpiresAt, of.ExpiresAt, true
	of.CreatedBy = "eva"
	_, second := issue(t, issuer, of)
	if second.ID == "x" || second.ID == first.ID || second.Digest == of.Digest || second.Hint == "x" ||
		!second.CreatedAt.Before(of.ExpiresAt) {
		t.Errorf("got %+v", second)
	}
	second.ID, second.Digest, second.Hint, second.CreatedAt = first.ID, first.Digest, first.Hint, first.CreatedAt
	if !reflect.DeepEqual(first, second) {
		t.Errorf("got %+v, want it like %+v", second, first)
	}
}

// A key that its caller changes later does not change the one in the store.
func TestAttributesAreCopied(t *testing.T) {
	_, issuer := newIssuer()
	g := grant()
	g.Attributes, g.Networks = map[string]string{"plan": "pro"}, prefixes("10.0.0.0/8")
	_, k := issue(t, issuer, g)
	g.Attributes["plan"] = "free"
	secret, next, err := rotate(t, issuer, issuing.Rotation{ID: k.ID})
	if err != nil || k.Attributes["plan"] != "pro" || next.Attributes["plan"] != "pro" || len(next.Networks) != 1 ||
		next.Networks[0] != g.Networks[0] || secret == (keystore.Secret{}) {
		t.Errorf("after a rotation the key has %v and %v, %v, want those of the old one", next.Attributes, next.Networks, err)
	}
}
