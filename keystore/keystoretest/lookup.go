package keystoretest

import (
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

var lookupCases = []testCase{
	{"Lookup/Unknown", func(t test) {
		_, err := t.Lookup(t.Context(), newKey("").Digest)
		t.wantError(err, keystore.ErrNotFound, "Lookup of a digest that no key has")
	}},

	{"Lookup/Record", func(t test) {
		k := newKey(unique("org"))
		t.insert(newKey(k.Organization), k, newKey(k.Organization))
		t.same("Lookup", t.lookup(k), k)
	}},

	{"Lookup/WholeDigest", func(t test) {
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
		t.insert(keys...)
		for _, k := range keys {
			if got := t.lookup(k); got.ID != k.ID {
				t.Errorf("Lookup(%x) returned the key with digest %x, want all 32 bytes to count", k.Digest, got.Digest)
			}
		}
		_, err := t.Lookup(t.Context(), first.Digest)
		t.wantError(err, keystore.ErrNotFound, "Lookup of a digest that differs from others in its last bytes")
	}},

	{"Lookup/AtOnce", func(t test) {
		keys := make([]*keystore.Key, racers)
		for i := range keys {
			keys[i] = t.inserted() // each of an organization of its own
		}
		t.allWin(atOnce(racers, func(i int) error {
			for range 50 {
				switch got, err := t.Lookup(t.Context(), keys[i].Digest); {
				case err != nil:
					return err
				case got.ID != keys[i].ID || got.Organization != keys[i].Organization || got.Digest != keys[i].Digest:
					return fmt.Errorf("the key %s of %s, want %s of %s", got.ID, got.Organization, keys[i].ID, keys[i].Organization)
				}
			}
			return nil
		}), "Lookup of several keys")
	}},

	{"Lookup/Refused", func(t test) {
		for status, change := range map[keystore.Status]func(k *keystore.Key){
			keystore.Revoked: revoked, keystore.Expired: expired, keystore.Suspended: suspended,
		} {
			k := t.inserted()
			change(k)
			t.update(k)
			got, err := t.Lookup(t.Context(), k.Digest)
			if err != nil {
				t.Errorf("Lookup of a key that is %s returned %v, want the key, which its caller refuses", status, err)
			} else if got := got.Status(time.Now()); got != status {
				t.Errorf("Lookup of a key that is %s returned one that is %s", status, got)
			}
		}
	}},
}
