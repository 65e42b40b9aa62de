package issuing_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, issuer := issuing.InMemory(keystore.Service{Prefix: "acme"})
		token, k := issue(t, issuer, grant())
		if !strings.HasPrefix(token, "acme_test_") {
			t.Errorf("the token is %q", token)
		}
		want(t, keys, keystore.DigestOf(token), nil, "a new key")
		if _, err := issuer.Revoke(t.Context(), "other", k.ID); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Revoke by another organization returned %v, want ErrNotFound", err)
		}
		want(t, keys, keystore.DigestOf(token), nil, "after another organization tried to revoke it")
		first, err := issuer.Revoke(t.Context(), "acme", k.ID)
		if err != nil || first.Version != 2 || !errors.Is(first.Refused(), keystore.ErrRevoked) {
			t.Fatalf("Revoke returned %+v, %v, want the revoked key", first, err)
		}
		want(t, keys, keystore.DigestOf(token), keystore.ErrRevoked, "after Revoke")
		time.Sleep(time.Hour)
		again, err := issuer.Revoke(t.Context(), "acme", k.ID)
		if err != nil || !again.RevokedAt.Equal(first.RevokedAt) || again.Version != 2 {
			t.Errorf("a second Revoke returned %+v, %v, want the key as the first one left it", again, err)
		}
	})
}

// Another process has done it already, and this one has the key cached.
func TestWhatIsDoneElsewhere(t *testing.T) {
	for wanted, do := range map[error]func(i *issuing.Issuer, id string) error{
		keystore.ErrSuspended: func(i *issuing.Issuer, id string) error {
			_, err := edit(t, i, "acme", id, suspended)
			return err
		},
		keystore.ErrRevoked: func(i *issuing.Issuer, id string) error {
			_, err := i.Revoke(t.Context(), "acme", id)
			return err
		},
	} {
		memory := issuing.NewMemory()
		here := keystore.NewCached(memory, keystore.CacheOptions{})
		there := issuing.New(memory, issuing.Options{})
		token, k := issue(t, there, grant())
		want(t, here, keystore.DigestOf(token), nil, "a new key")
		for _, issuer := range []*issuing.Issuer{there, issuing.New(here, issuing.Options{})} {
			must(t, do(issuer, k.ID))
		}
		want(t, here, keystore.DigestOf(token), wanted, "though there was nothing to write")
	}
}

func TestRevokeAgainstOtherWriters(t *testing.T) {
	memory, issuer := newIssuer()
	token, k := issue(t, issuer, grant())
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			var err error
			if i == 0 {
				_, err = issuer.Revoke(t.Context(), "acme", k.ID)
			} else {
				_, err = edit(t, issuer, "acme", k.ID, renamed(strings.Repeat("x", i)))
			}
			if i == 0 && err != nil || i > 0 && err != nil && !errors.Is(err, issuing.ErrConflict) {
				t.Errorf("a change beside others returned %v, want nil, or ErrConflict for an edit", err)
			}
		})
	}
	writers.Wait()
	want(t, memory, keystore.DigestOf(token), keystore.ErrRevoked, "whoever wrote last")

	stuck := issuing.New(failing{Store: memory, update: func() error { return issuing.ErrConflict }}, issuing.Options{})
	if _, err := edit(t, stuck, "acme", k.ID, renamed("new")); !errors.Is(err, issuing.ErrConflict) {
		t.Errorf("a change on a store that always reports a conflict returned %v, want ErrConflict", err)
	}
}
