package keystoretest

import (
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// unknown wants the error that a method has for a key that is not there.
func (t test) unknown(rule string) func(*keystore.Key, error) {
	return func(_ *keystore.Key, err error) {
		t.Helper()
		t.wantError(err, keystore.ErrNotFound, rule)
	}
}

var lookupCases = []testCase{
	{"Lookup/Unknown", func(t test) {
		t.unknown("Lookup of a digest that no key has")(t.Lookup(t.Context(), newKey("").Digest))
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
		t.unknown("Lookup of a digest that differs from others in its last bytes")(t.Lookup(t.Context(), first.Digest))
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

var findCases = []testCase{
	{"Find/Record", func(t test) {
		k := newKey(unique("org"))
		t.insert(newKey(k.Organization), k)
		t.same("Find", t.find(k), k)
		t.unknown("Find of an id that no key has")(t.Find(t.Context(), k.Organization, unique("key")))
	}},

	{"Find/OtherOrganization", func(t test) {
		k, other := t.inserted(), t.inserted()
		t.unknown("Find of another organization's key")(t.Find(t.Context(), other.Organization, k.ID))
		t.unknown("Find without an organization")(t.Find(t.Context(), "", k.ID))
	}},

	{"FindIssued/Record", func(t test) {
		k := t.inserted()
		got := must(t.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken))(t, "FindIssued")
		t.same("FindIssued", got, k)
	}},

	{"FindIssued/Others", func(t test) {
		k := newKey(unique("org"))
		none := newKey(k.Organization)
		none.CreatedBy, none.IssueToken = k.CreatedBy, ""
		t.insert(k, none)
		for rule, by := range map[string][3]string{
			"of another organization":                         {unique("org"), k.CreatedBy, k.IssueToken},
			"of another creator":                              {k.Organization, unique("user"), k.IssueToken},
			"with a token nobody used":                        {k.Organization, k.CreatedBy, unique("token")},
			"with an empty token, beside a key that has none": {k.Organization, k.CreatedBy, ""},
		} {
			t.unknown("FindIssued " + rule)(t.FindIssued(t.Context(), by[0], by[1], by[2]))
		}
	}},

	{"Find/Owned", func(t test) {
		k := t.inserted()
		spoil(t.find(k))
		spoil(must(t.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken))(t, "FindIssued"))
		for _, listed := range t.list(k.Organization, issuing.Query{}) {
			spoil(listed)
		}
		t.keeps(k, "a key after a caller changed those it had been given")
	}},
}
