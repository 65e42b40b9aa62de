package keystore_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func TestBind(t *testing.T) {
	k := &keystore.Key{Organization: "acme", Environment: keystore.Sandbox,
		Scopes: []scope.Name{"tasks:read", "future:thing", "chat:*"}}
	c := k.Bind(scope.Default())
	if got := c.Granted().String(); got != "tasks:read" {
		t.Errorf("the caller is granted %q, want tasks:read alone", got)
	}
	if c.Bind(scope.Default()) != c || c.Bind(nil) != c || k.Bind(nil).Granted() != c.Granted() {
		t.Error("Bind of a caller to its registry made a copy, or nil is not the contract's")
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
		for _, c := range []*keystore.Caller{k.Bind(scope.Default()), k.Bind(scope.New()).Bind(scope.Default())} {
			expires, revoked := c.Expiry()
			if c.KeyID()+c.Subject() != k.ID || c.Organization() != k.Organization || c.Environment() != k.Environment ||
				c.Tenant() != fmt.Sprintf("%d:%s/%s", len(k.Environment), k.Environment, k.Organization) ||
				(c.KeyID() != "") != (k.ID != "" && k.Digest != keystore.Digest{}) ||
				!slices.Equal(c.Scopes(), k.Scopes) || c.Attribute("plan") != k.Attributes["plan"] ||
				!c.AllowsAddress(netip.Addr{}) != (k.Networks != nil) || !c.AllowsAddress(inside) ||
				c.AllowsAddress(netip.Addr{}) != (k.Networks == nil) ||
				!expires.Equal(k.ExpiresAt) || !revoked.Equal(k.RevokedAt) || c.Refused() != k.Refused() {
				t.Errorf("the caller %+v differs from its key %+v", c, k)
			}
		}
	}
	const want = "[key=key_1 organization=acme/10:production environment=sandbox]"
	if got := full.Bind(scope.Default()).String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Nobody may be asked anything, and is never anybody.
func TestNobody(t *testing.T) {
	written := newBook(nil)
	uses := keystore.NewUses(written, keystore.UsesOptions{})
	for name, c := range map[string]*keystore.Caller{"nil": nil, "zero": {}} {
		uses.Record(c, anywhere)
		c.Use(scope.TasksRead)
		expires, revoked := c.Expiry()
		if c.KeyID() != "" || c.Subject() != "" || c.Organization() != "" || c.Environment() != "" || c.Tenant() != "" ||
			c.Attribute("plan") != "" || len(c.Scopes()) > 0 || c.Granted() != (scope.Set{}) || c.Has(scope.TasksRead) ||
			!c.AllowsAddress(netip.Addr{}) || c.Refused() != nil || !expires.IsZero() ||
			!revoked.IsZero() || c.Bind(scope.Default()) != c || c.String() != "[]" {
			t.Errorf("%s: got %v, want nobody", name, c)
		}
		if len(c.LogValue().Group()) > 0 {
			t.Errorf("%s: got %v in the log", name, c.LogValue())
		}
	}
	session, _ := keystore.NewCaller(nil, keystore.Identity{Organization: "acme", Subject: "key_1"})
	uses.Record(session, anywhere)
	if got := flushed(t, uses, written); got != nil {
		t.Errorf("without a key got the uses %v", got)
	}
}

func TestNewCaller(t *testing.T) {
	i := keystore.Identity{
		Organization: "org_1", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
		Subject: "user_1", Attributes: map[string]string{"plan": "paid"}, Networks: prefixes("192.0.2.0/24"),
		ExpiresAt: time.Now().Add(-time.Second),
	}
	c, err := keystore.NewCaller(nil, i)
	must(t, err)
	i.Scopes[0], i.Attributes["plan"], i.Networks[0] = scope.AccountRead, "free", netip.Prefix{} // it has copies
	if c.Organization() != "org_1" || c.Environment() != keystore.Sandbox || c.Subject() != "user_1" ||
		c.KeyID() != "" || c.Attribute("plan") != "paid" || c.Attribute("none") != "" || !c.Has(scope.TasksRead) ||
		!c.Has(scope.TasksWrite) || c.Has(scope.AccountRead) || c.AllowsAddress(netip.Addr{}) ||
		!c.AllowsAddress(netip.MustParseAddr("192.0.2.1")) || c.Refused() != keystore.ErrExpired ||
		c.String() != "[subject=user_1 organization=org_1 environment=sandbox]" {
		t.Errorf("got %v with the scopes %v, %v", c, c.Scopes(), c.Refused())
	}
	minimal, err := keystore.NewCaller(nil, keystore.Identity{Organization: "org_1"})
	if err != nil || minimal.Environment() != keystore.Production || minimal.Subject() != "" || minimal.KeyID() != "" ||
		minimal.Has(scope.TasksRead) || minimal.Refused() != nil || minimal.Tenant() == c.Tenant() {
		t.Errorf("the smallest Identity: got %v, %v", minimal, err)
	}
}

// All mistakes are named at once, by the fields of Identity.
func TestNewCallerMistakes(t *testing.T) {
	own := scope.New(scope.Definition{Name: "parcels:read", Meaning: "See parcels."})
	wrong := keystore.Identity{Environment: "staging", Scopes: []scope.Name{"tasks:raed"},
		Subject: strings.Repeat("x", 256), Attributes: map[string]string{"a b": "1"}, Networks: make([]netip.Prefix, 1)}
	for _, c := range []struct {
		registry *scope.Registry
		of       keystore.Identity
		want     map[string]string
	}{
		{nil, wrong, map[string]string{"organization": "is missing", "environment": `"production"`,
			"scopes":  `A nil registry means scope.Default, which has no scope "tasks:raed"; did you mean "tasks:read"`,
			"subject": "The subject is longer than 255 bytes", "attributes": "other characters", "networks": "is no network"}},
		{own, keystore.Identity{Organization: "a", Scopes: []scope.Name{scope.TasksRead}},
			map[string]string{"scopes": `There is no scope "tasks:read"`}},
		{own, keystore.Identity{Organization: "a", Scopes: []scope.Name{"parcels:read"}}, nil},
	} {
		got, err := keystore.NewCaller(c.registry, c.of)
		fields, ok := errors.AsType[*keystore.FieldsError](err)
		if ok != (c.want != nil) || ok == (got != nil) || ok && len(fields.Fields) != len(c.want) {
			t.Errorf("of %+v: got %v, %v, want errors about %v", c.of, got, err, c.want)
			continue
		}
		for i := 0; ok && i < len(fields.Fields); i++ {
			if f := fields.Fields[i]; c.want[f.Field] == "" || !strings.Contains(f.Message, c.want[f.Field]) {
				t.Errorf("%s: got %q, want it about %q", f.Field, f.Message, c.want[f.Field])
			}
		}
	}
}
