package issuing_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestImport(t *testing.T) {
	old := "svc_test_" + strings.Repeat("aB", 12)
	older := []keystore.LegacyFormat{{Name: "older", Prefix: "svc_test_"}}
	for _, c := range []struct {
		name   string
		format keystore.Service
		token  string
		ok     bool
	}{
		{"our own", keystore.Service{}, sandboxToken(), true},
		{"an older one, not accepted", keystore.Service{}, old, false},
		{"an older one, accepted", keystore.Service{Legacy: older}, old, true},
		{"another prefix", keystore.Service{Legacy: older}, "x" + old, false},
		{"a publishable one", keystore.Service{Legacy: older}, strings.Replace(old, "test", "pub", 1), false},
	} {
		memory := issuing.NewMemory()
		k, err := issuing.New(memory, issuing.Options{Service: c.format}).Import(t.Context(),
			record(grant(), keystore.Key{}), c.token)
		candidates, parseErr := c.format.Parse(c.token)
		if !c.ok {
			if parseErr == nil || err != parseErr || k != nil {
				t.Errorf("Import of %s returned %v, %v, want the error of Parse, %v", c.name, k, err, parseErr)
			}
			continue
		}
		must(t, errors.Join(err, parseErr))
		// What was imported passes the parser of the request path and is found.
		if found, err := candidates.Caller(t.Context(), memory, nil); err != nil || found.Refused() != nil ||
			found.KeyID() != k.ID {
			t.Errorf("%s is refused after Import: %v, %v", c.name, found, err)
		}
		if legacy := k.Legacy != ""; legacy != (c.token == old) {
			t.Errorf("Import of %s marked the key %q", c.name, k.Legacy)
		}
		if !strings.HasSuffix(c.token, k.Hint) || len(k.Hint) != 4 {
			t.Errorf("Import of %s gave the hint %q, want its last four characters", c.name, k.Hint)
		}
	}
}

func TestImportProblems(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	g := grant()
	g.Name = "\n"
	var problems *keystore.FieldsError
	if _, err := issuer.Import(t.Context(), record(g, keystore.Key{}), token); !errors.As(err, &problems) ||
		len(problems.Fields) != 2 ||
		problems.Fields[1].Field != "environment" || !strings.Contains(problems.Fields[1].Message, "production") {
		t.Errorf("Import of a live token into the sandbox, with a bad name, returned %v, want both problems", err)
	}
	g = grant()
	g.Environment = "" // is missing, and not also another than that of the token
	if _, err := issuer.Import(t.Context(), record(g, keystore.Key{}), token); !errors.As(err, &problems) ||
		len(problems.Fields) != 1 {
		t.Errorf("Import without an environment returned %v, want one problem", err)
	}
	for _, dead := range []keystore.Key{{RevokedAt: time.Now().Add(time.Hour)}, {Suspended: true}} {
		_, err := issuer.Import(t.Context(), record(grant(), dead), sandboxToken())
		wantField(t, err, "revoked_at", "Import of a key that was revoked or suspended")
	}
	child := keystore.Service{}.Generate(keystore.Sandbox, new(keystore.Key)).Reveal()
	_, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), child)
	wantField(t, err, "parent", "the token of a child, which has a parent")
}

func TestImportTwice(t *testing.T) {
	memory := issuing.NewMemory()
	issuer := issuing.New(keystore.NewCached(memory, keystore.CacheOptions{}), issuing.Options{})
	token := sandboxToken()
	first, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), token)
	must(t, err)
	again, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), token)
	wantKey(t, again, err, issuing.ErrExists, first.ID, "a second Import")
	if again.Hint != first.Hint || again.Version != 1 {
		t.Errorf("a second Import returned %+v, want the key", again)
	}
	again.Name = "changed" // it belongs to the caller, and not to whoever shares it
	if third, _ := issuer.Import(t.Context(), record(grant(), keystore.Key{}), token); third.Name == "changed" {
		t.Error("changing the key that Import returned changed the store's")
	}
	other := grant()
	other.Organization = "other"
	k, err := issuer.Import(t.Context(), record(other, keystore.Key{}), token)
	wantKey(t, k, err, issuing.ErrExists, "", "Import by another organization, which learns nothing about whose it is")
	// Nobody takes the token of a key that was not stored for one that was.
	tokened := grant()
	tokened.IssueToken = "form-1"
	imported := sandboxToken()
	_, err = issuer.Import(t.Context(), record(tokened, keystore.Key{}), imported)
	must(t, err)
	k, err = issuer.Import(t.Context(), record(tokened, keystore.Key{}), sandboxToken())
	wantField(t, err, "issue_token", "Import with the issue token of another key")
	if k != nil {
		t.Errorf("Import with the issue token of another key returned %v", k)
	}
	for _, token := range []string{imported, token} { // the second was stored without an issue token
		k, err := issuer.Import(t.Context(), record(tokened, keystore.Key{}), token)
		if !errors.Is(err, issuing.ErrExists) || k == nil || k.Digest != keystore.DigestOf(token) {
			t.Errorf("Import with an issue token of a key that is there returned %v, %v, want ErrExists and the key", k, err)
		}
	}

	// When the store fails, no key is returned, also if it exists.
	broken := issuing.New(failing{Store: memory, insert: down}, issuing.Options{})
	k, err = broken.Import(t.Context(), record(grant(), keystore.Key{}), token)
	wantKey(t, k, err, errStoreDown, "", "Import into a store that fails")
	unread := issuing.New(unsure{memory}, issuing.Options{})
	k, err = unread.Import(t.Context(), record(grant(), keystore.Key{}), token)
	wantKey(t, k, err, errStoreDown, "", "Import of a key that is there and cannot be read")
}

func TestImportOfADigest(t *testing.T) {
	pepper := []byte("the sole pepper")
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(pepper)}}
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{Service: format})
	created := time.Date(2024, 5, 6, 7, 8, 9, 1234, time.FixedZone("east", 3600))
	used := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	g := grant()
	g.Attributes = map[string]string{"plan": "pro"}
	old := keystore.Key{Digest: hmacOf(pepper, acme("1")), Legacy: "v1", ID: "ak_17", Hint: "11111111",
		CreatedAt: created, LastUsedAt: used}
	_, err := issuer.Import(t.Context(), record(g, old), "")
	must(t, err)
	stored, err := memory.Find(t.Context(), "acme", "ak_17")
	if err != nil || stored.Digest != old.Digest || stored.Legacy != "v1" || stored.Hint != "11111111" ||
		!stored.CreatedAt.Equal(created.Truncate(time.Microsecond)) ||
		!stored.LastUsedAt.Equal(used) || stored.Attributes["plan"] != "pro" || stored.Name != g.Name ||
		stored.CreatedBy != "ada" || len(stored.Scopes) != len(g.Scopes) {
		t.Errorf("Import of a digest stored %+v, %v, want what it was given", stored, err)
	}

	// A program that imports many can be run again.
	again, err := issuer.Import(t.Context(), record(g, old), "")
	wantKey(t, again, err, issuing.ErrExists, "ak_17", "a second Import of a digest")
	other := g
	other.Organization = "other"
	again, err = issuer.Import(t.Context(), record(other, old), "")
	wantKey(t, again, err, issuing.ErrExists, "", "Import of a digest by another organization")
	// A key that cannot be stored is not taken for one that is there: two older
	// systems may both have a key 17.
	for _, g := range []keystore.Key{g, other} {
		taken := keystore.Key{Digest: hmacOf(pepper, acme("3")), Legacy: "v1", ID: "ak_17"}
		if k, err := issuer.Import(t.Context(), record(g, taken), ""); k != nil || errors.Is(err, issuing.ErrExists) ||
			err == nil || !strings.Contains(err.Error(), "id: Another key has this ID, or had it.") {
			t.Errorf("Import of a digest with the ID of another key returned %v, %v", k, err)
		}
	}
	bare := keystore.Key{Digest: hmacOf(pepper, acme("2")), Legacy: "v1"}
	least, err := issuer.Import(t.Context(), record(grant(), bare), "")
	if err != nil || !strings.HasPrefix(least.ID, "key_") || least.CreatedAt.IsZero() || !least.LastUsedAt.IsZero() ||
		issuer.Service().Masked(least) != "acme_…" {
		t.Errorf("Import of a digest of no more than a digest returned %+v, %v", least, err)
	}
}

func TestImportOfADigestProblems(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(),
		issuing.Options{Service: keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}}})
	digest := keystore.DigestOf("x")
	for _, c := range []struct {
		old  keystore.Key
		want []string
	}{
		{keystore.Key{Digest: digest, Legacy: "v1", ID: strings.Repeat("x", 255), Hint: "12345678"}, nil},
		{keystore.Key{}, []string{"digest", "legacy"}},
		{keystore.Key{Digest: digest, Legacy: "v2"}, []string{"legacy"}},
		{keystore.Key{Digest: digest, Legacy: "v1", ID: strings.Repeat("x", 256)}, []string{"id"}},
		{keystore.Key{Digest: digest, Legacy: "v1", ID: "\xff"}, []string{"id"}},
		{keystore.Key{Digest: digest, Legacy: "v1", Hint: "123456789"}, []string{"hint"}},
		{keystore.Key{Digest: digest, Legacy: "v1", Hint: "\xff"}, []string{"hint"}},
		{keystore.Key{Digest: digest, Legacy: "v1", Hint: "\x00"}, []string{"hint"}},
		{keystore.Key{Digest: digest, Legacy: "v1", CreatedBy: "\xff"}, []string{"created_by"}},
		{keystore.Key{Digest: digest, Legacy: "v1", CreatedBy: "\u200b"}, []string{"created_by"}},
	} {
		_, err := issuer.Import(t.Context(), record(grant(), c.old), "")
		var fields []string
		if problems, ok := errors.AsType[*keystore.FieldsError](err); ok {
			for _, p := range problems.Fields {
				fields = append(fields, p.Field)
			}
		}
		if !slices.Equal(fields, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("Import of a digest of %+v returned %v, want problems with %v", c.old, err, c.want)
		}
	}
}

// A token has one record: another one would outlive the revocation of the
// first.
func TestImportUnderAnotherPepper(t *testing.T) {
	store := failing{Store: issuing.NewMemory()}
	before := issuing.New(store, issuing.Options{Service: peppered("the old pepper")})
	after := issuing.New(store, issuing.Options{Service: peppered("the new pepper", "the old pepper")})
	first, err := before.Import(t.Context(), record(grant(), keystore.Key{}), acme("1"))
	if err != nil || first.Digest != hmacOf([]byte("the old pepper"), acme("1")) {
		t.Fatalf("Import returned %+v, %v", first, err)
	}
	again, err := after.Import(t.Context(), record(grant(), keystore.Key{}), acme("1"))
	wantKey(t, again, err, issuing.ErrExists, first.ID, "Import of the token under a newer pepper")
	second, err := after.Import(t.Context(), record(grant(), keystore.Key{}), acme("2"))
	if err != nil || second.Digest != hmacOf([]byte("the new pepper"), acme("2")) {
		t.Errorf("Import returned %+v, %v, want the digest of the newest pepper", second, err)
	}
	lost := issuing.New(unsure{store}, issuing.Options{Service: peppered("the new pepper", "the old pepper")})
	if _, err := lost.Import(t.Context(), record(grant(), keystore.Key{}), acme("3")); !errors.Is(err, errStoreDown) {
		t.Errorf("Import where the older digest cannot be looked up returned %v, want the error of the store", err)
	}
}

// erasing finds in place of no key what another organization's erasure has left.
type erasing struct{ issuing.Store }

func (e erasing) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	k, err := e.Store.Lookup(ctx, d)
	if errors.Is(err, keystore.ErrNotFound) {
		return &keystore.Key{ID: "erased", Digest: d, Environment: keystore.Sandbox, RevokedAt: time.Now()}, nil
	}
	return k, err
}

// What an erasure has left is no key: neither that of the token nor that of
// another organization.
func TestImportAfterAnErasure(t *testing.T) {
	issuer := issuing.New(erasing{issuing.NewMemory()},
		issuing.Options{Service: peppered("the new pepper", "the old pepper")})
	first, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), acme("1"))
	if err != nil {
		t.Fatalf("Import of a token that was erased under an older pepper returned %v", err)
	}
	_, err = issuer.Import(t.Context(), record(grant(), keystore.Key{ID: first.ID}), acme("2"))
	wantField(t, err, "id", "Import of an erased token with the ID of another key")
}

// unsure can do everything but look up.
type unsure struct{ issuing.Store }

func (unsure) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errStoreDown
}
