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

func refusal(t testing.TB, s keystore.Store, token string) error {
	t.Helper()
	k, err := s.Lookup(t.Context(), keystore.DigestOf(token))
	if err != nil {
		t.Fatalf("Lookup returned %v, want the key", err)
	}
	return k.Refused()
}

func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
		issuer := issuing.New(keys, issuing.Options{})
		token, k := issue(t, issuer, grant())
		if err := refusal(t, keys, token); err != nil {
			t.Fatalf("a new key is refused: %v", err)
		}
		if _, err := issuer.Revoke(t.Context(), "other", k.ID); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Revoke by another organization returned %v, want ErrNotFound", err)
		}
		if err := refusal(t, keys, token); err != nil {
			t.Fatalf("a key is refused after another organization tried to revoke it: %v", err)
		}
		first, err := issuer.Revoke(t.Context(), "acme", k.ID)
		if err != nil || first.Version != 2 || !errors.Is(first.Refused(), keystore.ErrRevoked) {
			t.Fatalf("Revoke returned %+v, %v, want the revoked key", first, err)
		}
		if err := refusal(t, keys, token); !errors.Is(err, keystore.ErrRevoked) {
			t.Errorf("after Revoke the key is refused with %v, want ErrRevoked", err)
		}
		time.Sleep(time.Hour)
		again, err := issuer.Revoke(t.Context(), "acme", k.ID)
		if err != nil || !again.RevokedAt.Equal(first.RevokedAt) || again.Version != 2 {
			t.Errorf("a second Revoke returned %+v, %v, want the key as the first one left it", again, err)
		}
	})
}

// Another process has suspended the key, and this one has it cached.
func TestEditOfWhatIsEditedElsewhere(t *testing.T) {
	memory := issuing.NewMemory()
	here := keystore.NewCached(memory, keystore.CacheOptions{})
	there := issuing.New(memory, issuing.Options{})
	token, k := issue(t, there, grant())
	if err := refusal(t, here, token); err != nil {
		t.Fatal(err)
	}
	for _, issuer := range []*issuing.Issuer{there, issuing.New(here, issuing.Options{})} {
		if _, err := edit(t, issuer, "acme", k.ID, suspended); err != nil {
			t.Fatal(err)
		}
	}
	if err := refusal(t, here, token); !errors.Is(err, keystore.ErrSuspended) {
		t.Errorf("after Edit the key is refused with %v, want ErrSuspended though there was nothing to write", err)
	}
}

// Another process has revoked the key, and this one has it cached.
func TestRevokeOfWhatIsRevokedElsewhere(t *testing.T) {
	memory := issuing.NewMemory()
	here := keystore.NewCached(memory, keystore.CacheOptions{})
	there := issuing.New(memory, issuing.Options{})
	token, k := issue(t, there, grant())
	if err := refusal(t, here, token); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Revoke(t.Context(), "acme", k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := issuing.New(here, issuing.Options{}).Revoke(t.Context(), "acme", k.ID); err != nil {
		t.Fatal(err)
	}
	if err := refusal(t, here, token); !errors.Is(err, keystore.ErrRevoked) {
		t.Errorf("after Revoke the key is refused with %v, want ErrRevoked though there was nothing to write", err)
	}
}

func TestRevokeAgainstOtherWriters(t *testing.T) {
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{})
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
	if err := refusal(t, memory, token); !errors.Is(err, keystore.ErrRevoked) {
		t.Errorf("the key is refused with %v, want ErrRevoked whoever wrote last", err)
	}

	stuck := issuing.New(failing{Store: memory, update: func() error { return issuing.ErrConflict }},
		issuing.Options{})
	if _, err := edit(t, stuck, "acme", k.ID, renamed("new")); !errors.Is(err, issuing.ErrConflict) {
		t.Errorf("a change on a store that always reports a conflict returned %v, want ErrConflict", err)
	}
	broken := issuing.New(failing{Store: memory, update: down}, issuing.Options{})
	if _, err := edit(t, broken, "acme", k.ID, renamed("new")); !errors.Is(err, errStoreDown) {
		t.Errorf("a change on a store that is down returned %v, want its error", err)
	}
}

func TestSuspend(t *testing.T) {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	issuer := issuing.New(keys, issuing.Options{})
	token, k := issue(t, issuer, grant())
	for _, c := range []struct {
		do   func() (*keystore.Key, error)
		want error
	}{
		{func() (*keystore.Key, error) { return edit(t, issuer, "acme", k.ID, suspended) },
			keystore.ErrSuspended},
		{func() (*keystore.Key, error) { return edit(t, issuer, "acme", k.ID, suspended) },
			keystore.ErrSuspended},
		{func() (*keystore.Key, error) {
			return edit(t, issuer, "acme", k.ID, func(k *keystore.Key) { k.Suspended = false })
		}, nil},
		{func() (*keystore.Key, error) {
			return edit(t, issuer, "acme", k.ID, func(k *keystore.Key) { k.Suspended = false })
		}, nil},
	} {
		if _, err := c.do(); err != nil {
			t.Fatal(err)
		}
		if err := refusal(t, keys, token); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("the key is refused with %v, want %v", err, c.want)
		}
	}
	if _, err := edit(t, issuer, "other", k.ID, suspended); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Suspend by another organization returned %v, want ErrNotFound", err)
	}
}
