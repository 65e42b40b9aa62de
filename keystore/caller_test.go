package keystore_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func TestBind(t *testing.T) {
	k := &keystore.Key{Organization: "acme", Environment: keystore.Sandbox,
		Scopes: []scope.Name{"tasks:read", "future:thing", "chat:*"}}
	c := k.Bind(scope.Contract())
	if got := c.Granted().String(); got != "tasks:read" {
		t.Errorf("the caller is granted %q, want tasks:read alone", got)
	}
	if c.Bind(scope.Contract()) != c {
		t.Error("Bind of a caller to its registry made a copy")
	}
	other := scope.New(scope.Definition{Name: "future:thing"})
	if again := c.Bind(other); again == c || again.Granted().String() != "future:thing" {
		t.Errorf("Bind to another registry grants %v, want future:thing", again.Granted())
	}

	k.Scopes[0], c.Scopes()[0] = scope.WebhooksWrite, scope.WebhooksWrite
	if c.Granted().Has(scope.WebhooksWrite) || c.Scopes()[0] != scope.TasksRead {
		t.Error("a change of the key's scopes, or of what Scopes returned, changed the caller")
	}
}

// A Caller says of each key what the key says, also after it is bound to another
// registry.
func TestCallerIsItsKey(t *testing.T) {
	now := time.Now()
	full := keystore.Key{
		ID: "key_1", Digest: keystore.DigestOf("a"), Organization: "acme/10:production", Environment: keystore.Sandbox,
		Scopes: []scope.Name{scope.TasksWrite, scope.TasksRead}, Attributes: map[string]string{"plan": "gold"},
		Networks: prefixes("192.0.2.0/24"), Legacy: "v1", ExpiresAt: now.Add(time.Hour),
		RevokedAt: now.Add(2 * time.Hour), Suspended: true,
	}
	tests := []keystore.Key{{}, full}
	for i := range reflect.TypeFor[keystore.Key]().NumField() {
		var k keystore.Key // with one field, then with all others
		reflect.ValueOf(&k).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		tests = append(tests, k)
		k = full
		reflect.ValueOf(&k).Elem().Field(i).SetZero()
		tests = append(tests, k)
	}
	inside := netip.MustParseAddr("192.0.2.1")
	for _, k := range tests {
		for _, c := range []*keystore.Caller{k.Bind(scope.Contract()), k.Bind(scope.New()).Bind(scope.Contract())} {
			expires, revoked := c.Ends()
			if c.ID() != k.ID || c.Organization() != k.Organization || c.Environment() != k.Environment ||
				c.Tenant() != fmt.Sprintf("%d:%s/%s", len(k.Environment), k.Environment, k.Organization) ||
				c.Stored() != (k.Digest != keystore.Digest{}) ||
				!slices.Equal(c.Scopes(), k.Scopes) || c.Attribute("plan") != k.Attributes["plan"] ||
				c.Restricted() != (k.Networks != nil) || !c.AllowsAddress(inside) ||
				c.AllowsAddress(netip.Addr{}) != (k.Networks == nil) ||
				!expires.Equal(k.ExpiresAt) || !revoked.Equal(k.RevokedAt) || c.Refused() != k.Refused() {
				t.Errorf("the caller %+v differs from its key %+v", c, k)
			}
		}
	}
	var nobody keystore.Caller
	if nobody.ID() != "" || nobody.Organization() != "" || nobody.Environment() != "" || nobody.Tenant() != "" ||
		nobody.Attribute("plan") != "" || len(nobody.Scopes()) > 0 || nobody.Stored() {
		t.Errorf("the zero Caller is %+v, want nobody", &nobody)
	}
}
