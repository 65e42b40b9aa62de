package keystoretest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

var lookupCases = []testCase{
	{"Lookup/Unknown", func(t testing.TB, m issuing.Store) {
		_, err := m.Lookup(t.Context(), newKey("").Digest)
		wantError(t, err, keystore.ErrNotFound, "Lookup of a digest that no key has")
	}},

	{"Lookup/Record", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		insert(t, m, newKey(k.Organization), k, newKey(k.Organization))
		same(t, "Lookup", lookup(t, m, k), k)
	}},

	{"Lookup/WholeDigest", func(t testing.TB, m issuing.Store) {
		// The bytes are such as end, quote or fold a text somewhere.
		first := newKey(unique("org"))
		copy(first.Digest[10:], "\x00\xff'\"\\%_aA ")
		copy(first.Digest[30:], "zz")
		var keys []*keystore.Key
		for _, last := range []string{"\x00\x00", "\x00 ", "a\x00", "aa", "aA", "\xff\xff"} {
			k := newKey(first.Organization)
			k.Digest = first.Digest
			copy(k.Digest[30:], last)
			keys = append(keys, k)
		}
		insert(t, m, keys...)
		for _, k := range keys {
			if got := lookup(t, m, k); got.ID != k.ID {
				t.Errorf("Lookup(%x) returned the key with digest %x, want all 32 bytes to count", k.Digest, got.Digest)
			}
		}
		_, err := m.Lookup(t.Context(), first.Digest)
		wantError(t, err, keystore.ErrNotFound, "Lookup of a digest that differs from others in its last bytes")
	}},

	{"Lookup/AtOnce", func(t testing.TB, m issuing.Store) {
		keys := make([]*keystore.Key, racers)
		for i := range keys {
			keys[i] = inserted(t, m) // each of an organization of its own
		}
		errs := atOnce(racers, func(i int) error {
			for range 50 {
				got, err := m.Lookup(t.Context(), keys[i].Digest)
				if err != nil {
					return err
				}
				if got.ID != keys[i].ID || got.Organization != keys[i].Organization || got.Digest != keys[i].Digest {
					return fmt.Errorf("the key %s of %s, want %s of %s", got.ID, got.Organization, keys[i].ID, keys[i].Organization)
				}
			}
			return nil
		})
		for _, err := range errs {
			if err != nil {
				t.Fatalf("Lookup of one of several keys at once returned %v", err)
			}
		}
	}},

	{"Lookup/Refused", func(t testing.TB, m issuing.Store) {
		organization := unique("org")
		for _, c := range []struct {
			status keystore.Status
			change func(k *keystore.Key)
		}{
			{keystore.Revoked, func(k *keystore.Key) { k.RevokedAt = at(-time.Hour) }},
			{keystore.Expired, func(k *keystore.Key) { k.ExpiresAt = at(-time.Hour) }},
			{keystore.Suspended, func(k *keystore.Key) { k.Suspended = true }},
		} {
			k := newKey(organization)
			insert(t, m, k)
			c.change(k)
			update(t, m, k)
			got, err := m.Lookup(t.Context(), k.Digest)
			if err != nil {
				t.Errorf("Lookup of a key that is %s returned %v, want the key, which its caller refuses", c.status,
					err)
				continue
			}
			if status := got.Status(time.Now()); status != c.status {
				t.Errorf("Lookup of a key that is %s returned one that is %s", c.status, status)
			}
		}
	}},
}
