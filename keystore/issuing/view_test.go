package issuing_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestIssuerShowsKeysToTheirOrganizationAlone(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{Prefix: "ship"}})
	_, k := issue(t, issuer, grant())
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
		if got, err := issuer.Keys(t.Context(), c.organization, issuing.Query{}); err != nil ||
			len(got.Keys) == 1 != c.found {
			t.Errorf("Keys for %q: got %d keys, %v", c.organization, len(got.Keys), err)
		}
	}
}

// KeyOf finds a key by its token alone, whatever its status, and says why it
// does not.
func TestKeyOf(t *testing.T) {
	memory := issuing.NewMemory()
	issuer := issuing.New(keystore.NewCached(memory, keystore.CacheOptions{}), issuing.Options{})
	token, k := issue(t, issuer, grant())
	revoke(t, issuer, k.ID)
	got, err := issuer.KeyOf(t.Context(), token)
	if err != nil || got.ID != k.ID || got.RevokedAt.IsZero() || got.Hint != k.Hint || got.Version != 2 {
		t.Fatalf("got %v, %v, want the revoked key", got, err)
	}
	got.Scopes[0] = "changed"
	if again, err := issuer.KeyOf(t.Context(), token); err != nil || again.Scopes[0] == "changed" {
		t.Errorf("got %v, %v: the key does not belong to the caller", again, err)
	}
	nobodys, err := issuer.KeyOf(t.Context(), keystore.Service{}.Generate(keystore.Production).Reveal())
	wantKey(t, nobodys, err, keystore.ErrNotFound, "", "the token of nobody")
	erased := keystore.Service{}.Generate(keystore.Production).Reveal()
	left := &keystore.Key{ID: "x", Digest: keystore.DigestOf(erased), Environment: keystore.Production,
		RevokedAt: time.Now()}
	must(t, memory.Insert(t.Context(), left, entry(), 0))
	nobodys, err = issuer.KeyOf(t.Context(), erased)
	wantKey(t, nobodys, err, keystore.ErrNotFound, "", "the token of an erased key")
	_, err = issuer.KeyOf(t.Context(), token+"x")
	if _, ok := errors.AsType[keystore.TokenError](err); !ok {
		t.Errorf("no key: got %v, want a TokenError", err)
	}
}

// What Uses has written is there to be read, through a Cached too.
func TestIssuerUsage(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	_, k := issue(t, issuer, grant())
	uses := keystore.NewUses(keys, keystore.UsesOptions{})
	uses.Record(k.Bind(scope.Default()), func() netip.Addr { return netip.MustParseAddr("192.0.2.7") })
	ended, end := context.WithCancel(t.Context())
	end()
	must(t, uses.Run(ended)) // which writes once
	got, err := issuer.Usage(t.Context(), "acme", k.ID)
	if err != nil || got.LastUsedFrom.String() != "192.0.2.7" || len(got.Days) != 1 || got.Days[0].Requests != 1 {
		t.Errorf("Usage returned %+v, %v, want one use", got, err)
	}
	if _, err := issuer.Usage(t.Context(), "other", k.ID); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Usage for another organization returned %v, want ErrNotFound", err)
	}
}

func TestKeysThatAreNotListed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, issuer := newIssuer()
	issue(t, issuer, grant())
	if page, err := issuer.Keys(ctx, "acme", issuing.Query{}); !errors.Is(err, context.Canceled) || page.Keys != nil {
		t.Errorf("got %v, %v, want the store's error", page.Keys, err)
	}
	if page, err := issuer.Keys(t.Context(), "acme", issuing.Query{AllOrganizations: true}); err == nil {
		t.Errorf("Keys of an organization and of all returned %v, want an error", page.Keys)
	}
}

// A store that answers with nothing, or with a key of somebody else, is no
// reason to panic, nor to show or change that key.
func TestIssuerOverCorruptStore(t *testing.T) {
	for name, k := range map[string]*keystore.Key{"nothing": nil,
		"a key of another organization": {ID: "key_1", Organization: "other"}} {
		issuer := issuing.New(corrupt{Store: issuing.NewMemory(), key: k}, issuing.Options{})
		ctx := t.Context()
		_, keyErr := issuer.Key(ctx, "acme", "key_1")
		_, keysErr := issuer.Keys(ctx, "acme", issuing.Query{})
		_, revokeErr := issuer.Revoke(ctx, "acme", "key_1")
		_, _, rotateErr := issuer.By("ada", "").Rotate(ctx, issuing.Rotation{Organization: "acme", ID: "key_1"})
		g := grant()
		g.IssueToken = "form-1"
		_, _, issueErr := issuer.Issue(ctx, g)
		for method, err := range map[string]error{
			"Key": keyErr, "Keys": keysErr, "Revoke": revokeErr, "Rotate": rotateErr, "Issue": issueErr,
		} {
			if !errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound) {
				t.Errorf("%s: %s returned %v, want ErrCorrupt alone", name, method, err)
			}
		}
		token := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
		got, err := issuer.Import(ctx, record(grant(), keystore.Key{}), token)
		wantKey(t, got, err, issuing.ErrExists, "", name+": Import of a token that exists")
	}
}

// corrupt is a store that holds every key and answers with another one.
type corrupt struct {
	issuing.Store
	key *keystore.Key
}

func (c corrupt) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) { return c.key, nil }
func (c corrupt) Insert(context.Context, *keystore.Key, issuing.AuditEntry, int) error {
	return issuing.ErrExists
}
func (c corrupt) Find(context.Context, string, string) (*keystore.Key, error) { return c.key, nil }
func (c corrupt) FindIssued(context.Context, string, string, string) (*keystore.Key, error) {
	return c.key, nil
}

func (c corrupt) List(context.Context, string, issuing.Query) (issuing.Listing, error) {
	return issuing.Listing{Keys: []*keystore.Key{c.key}}, nil
}
