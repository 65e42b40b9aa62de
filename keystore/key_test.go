package keystore_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// The JSON of a key names its fields as other programs do, and tells neither
// digest nor times that are zero.
func TestKeyAsJSON(t *testing.T) {
	text, err := json.Marshal(&keystore.Key{
		ID: "key_1", Digest: keystore.DigestOf("x"), Organization: "acme", Environment: keystore.Sandbox,
		Scopes: []scope.Name{scope.TasksRead}, CreatedAt: time.Unix(0, 0).UTC(), Version: 1,
	})
	const want = `{"id":"key_1","organization":"acme","environment":"sandbox","name":"","hint":"",` +
		`"scopes":["tasks:read"],"created_at":"1970-01-01T00:00:00Z","created_by":"","version":1}`
	if err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the clock stands still
		now := time.Now()
		for name, c := range map[string]struct {
			key    keystore.Key
			want   error
			status keystore.Status
		}{
			"zero":                  {keystore.Key{}, nil, keystore.Active},
			"expires in 1 ns":       {keystore.Key{ExpiresAt: now.Add(1)}, nil, keystore.Active},
			"expires now":           {keystore.Key{ExpiresAt: now}, keystore.ErrExpired, keystore.Expired},
			"expired":               {keystore.Key{ExpiresAt: now.Add(-1)}, keystore.ErrExpired, keystore.Expired},
			"to be revoked in 1 ns": {keystore.Key{RevokedAt: now.Add(1)}, nil, keystore.Active},
			"revoked now":           {keystore.Key{RevokedAt: now}, keystore.ErrRevoked, keystore.Revoked},
			"revoked":               {keystore.Key{RevokedAt: now.Add(-1)}, keystore.ErrRevoked, keystore.Revoked},
			"suspended":             {keystore.Key{Suspended: true}, keystore.ErrSuspended, keystore.Suspended},
			"expired and revoked": {keystore.Key{ExpiresAt: now, RevokedAt: now, Suspended: true},
				keystore.ErrRevoked, keystore.Revoked},
			"expired and suspended": {keystore.Key{ExpiresAt: now, Suspended: true}, keystore.ErrExpired, keystore.Expired},
			"other zone, expires now": {keystore.Key{ExpiresAt: now.In(time.FixedZone("", 3600))}, keystore.ErrExpired,
				keystore.Expired},
		} {
			if got := c.key.Refused(); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("%s: Refused = %v, want %v", name, got, c.want)
			}
			if got := c.key.Status(now); got != c.status {
				t.Errorf("%s: Status = %q, want %q", name, got, c.status)
			}
		}
	})
}

func TestTenant(t *testing.T) {
	seen := make(map[string]string)
	for _, organization := range []string{"", "acme", "acme/", "/acme", "production/acme", "7:sandbox/acme",
		"10:production/acme", ":", "1", "0:/", "世界"} {
		for _, environment := range []keystore.Environment{keystore.Production, keystore.Sandbox, "", "production/acme",
			"7:sandbox", "1:/", "0:"} {
			k := &keystore.Key{Organization: organization, Environment: environment}
			pair := organization + " and " + string(environment)
			tenant := k.Bind(scope.Default()).Tenant()
			if other, ok := seen[tenant]; ok {
				t.Errorf("Tenant of %q and of %q are both %q", pair, other, tenant)
			}
			seen[tenant] = pair
		}
	}
}

func TestClone(t *testing.T) {
	k := descendant(&keystore.Key{Scopes: []scope.Name{"tasks:read"}}, &keystore.Key{Scopes: []scope.Name{"tasks:read"}})
	clone := k.Clone()
	clone.Scopes[0], clone.Ancestors[0].Scopes[0] = scope.ChatRead, scope.ChatRead
	if k.Scopes[0] != scope.TasksRead || k.Ancestors[0].Scopes[0] != scope.TasksRead {
		t.Error("changing the scopes of a clone changed the key's, or those of an ancestor")
	}
}
