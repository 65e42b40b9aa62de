package issuing_test

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// want looks d up and reports another error than wanted, or a key whose
// refusal differs.
func want(t testing.TB, s keystore.Store, d keystore.Digest, wanted error, rule string) {
	t.Helper()
	k, err := s.Lookup(t.Context(), d)
	if err == nil {
		err = k.Refused()
	}
	if !errors.Is(err, wanted) || (err == nil) != (wanted == nil) {
		t.Errorf("%s: Lookup and Refused gave %v, want %v", rule, err, wanted)
	}
}

func suspended(k *keystore.Key) { k.Suspended = true }

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// must ends the test for an error of its set-up.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newIssuer returns an Issuer and its store.
func newIssuer() (issuing.Store, *issuing.Issuer) {
	memory := issuing.NewMemory()
	return memory, issuing.New(memory, issuing.Options{})
}

// sandboxToken returns a new token.
func sandboxToken() string { return keystore.Service{}.Generate(keystore.Sandbox).Reveal() }

// record is what Import takes: the fields of a grant, ada if nobody else made
// it, and what else is known.
func record(g keystore.Key, old keystore.Key) keystore.Key {
	old.Organization, old.CreatedBy, old.Name = g.Organization, cmp.Or(old.CreatedBy, "ada"), g.Name
	old.Environment, old.Scopes = g.Environment, g.Scopes
	old.Attributes, old.Networks, old.ExpiresAt, old.IssueToken = g.Attributes, g.Networks, g.ExpiresAt, g.IssueToken
	return old
}

// acme is a token of an older system, and legacyHMAC its shape.
func acme(digit string) string { return "acme_" + strings.Repeat(digit, 40) }

func legacyHMAC(peppers ...[]byte) keystore.LegacyFormat {
	return keystore.LegacyFormat{Name: "v1", Prefix: "acme_",
		Match:   regexp.MustCompile("^acme_[0-9a-f]{40}$").MatchString,
		Digests: keystore.HMACDigests(peppers...)}
}

// peppered is a service that also takes the tokens of an older system.
func peppered(peppers ...string) keystore.Service {
	var all [][]byte
	for _, p := range peppers {
		all = append(all, []byte(p))
	}
	return keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(all...)}}
}

func hmacOf(pepper []byte, token string) (d keystore.Digest) {
	h := hmac.New(sha256.New, pepper)
	h.Write([]byte(token))
	h.Sum(d[:0])
	return d
}

// entry is one of the audit, whatever it is about.
func entry() issuing.AuditEntry { return issuing.AuditEntry{ID: rand.Text()} }

// add stores a key and returns its digest.
func add(t testing.TB, m issuing.Store) keystore.Digest {
	t.Helper()
	token := sandboxToken()
	k := &keystore.Key{ID: "key_" + token[9:20], Digest: keystore.DigestOf(token), Organization: "acme",
		Environment: keystore.Sandbox}
	must(t, m.Insert(t.Context(), k, entry(), 0))
	return k.Digest
}

// rewrite writes a key of a store as it is.
func rewrite(t testing.TB, m issuing.Store, d keystore.Digest) {
	t.Helper()
	k, err := m.Lookup(t.Context(), d)
	must(t, err)
	must(t, m.Update(t.Context(), k, entry()))
}

func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// revoke revokes a key of acme.
func revoke(t testing.TB, i *issuing.Issuer, id string) {
	t.Helper()
	_, err := i.Revoke(t.Context(), "acme", id)
	must(t, err)
}

// edited changes a key of acme as it is now.
func edited(t testing.TB, i *issuing.Issuer, id string, change func(*keystore.Key)) {
	t.Helper()
	_, err := edit(t, i, "acme", id, change)
	must(t, err)
}

// rotate rotates a key of acme as ada.
func rotate(t testing.TB, i *issuing.Issuer, r issuing.Rotation) (keystore.Secret, *keystore.Key, error) {
	t.Helper()
	r.Organization = "acme"
	return i.By("ada", "").Rotate(t.Context(), r)
}

// wantKey reports another error than wanted, or another key than that with the id,
// which is empty for none.
func wantKey(t testing.TB, k *keystore.Key, err, wanted error, id, rule string) {
	t.Helper()
	if !errors.Is(err, wanted) || (err == nil) != (wanted == nil) || (k != nil) != (id != "") || k != nil && k.ID != id {
		t.Errorf("%s: got %v, %v, want the key %q and %v", rule, k, err, id, wanted)
	}
}

// wantExisting reports anything but [issuing.ErrExists], the key and no secret.
func wantExisting(t testing.TB, secret keystore.Secret, k *keystore.Key, err error, id, rule string) {
	t.Helper()
	wantKey(t, k, err, issuing.ErrExists, id, rule)
	if secret.Reveal() != "" {
		t.Errorf("%s: got a secret", rule)
	}
}

// wantField reports an error that does not name this field alone.
func wantField(t testing.TB, err error, field, rule string) { wantProblem(t, err, field, "", rule) }

// wantProblem is wantField of an error with this message, unless that is empty.
func wantProblem(t testing.TB, err error, field, message, rule string) {
	t.Helper()
	wrong, ok := errors.AsType[*keystore.FieldsError](err)
	if !ok || len(wrong.Fields) != 1 || wrong.Fields[0].Field != field ||
		message != "" && wrong.Fields[0].Message != message {
		t.Errorf("%s: got %v, want that %s is wrong: %s", rule, err, field, message)
	}
}
