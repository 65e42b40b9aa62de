package keysql_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// A row that somebody has spoilt is an error, and not a key without scopes or
// no key at all. Which texts are spoilt stands in TestScan of keysql.
func TestCorruptColumns(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k, db := inserted(t, store, "acme", 1)[0], d.open(t)
		for _, row := range [][2]string{
			{"scopes", ""}, {"scopes", "null"}, {"attributes", "[]"}, {"networks", "null"}, {"networks", "[null]"},
			{"networks", `[""]`},
		} {
			column, spoilt := row[0], row[1]
			before := values(t, db, "SELECT "+column+" FROM sallyport_keys")[0]
			execute(t, db, "UPDATE sallyport_keys SET "+column+" = '"+spoilt+"'")
			_, lookupErr := store.Lookup(t.Context(), k.Digest)
			_, cachedErr := keystore.NewCached(store, keystore.CacheOptions{}).Lookup(t.Context(), k.Digest)
			_, findErr := store.Find(t.Context(), k.Organization, k.ID)
			_, issuedErr := store.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
			_, listErr := store.List(t.Context(), k.Organization, issuing.Query{})
			for method, err := range map[string]error{
				"Lookup": lookupErr, "Lookup of a Cached": cachedErr, "Find": findErr, "FindIssued": issuedErr,
				"List": listErr,
			} {
				if !errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound) ||
					!strings.Contains(err.Error(), "network") && !strings.Contains(err.Error(), column) {
					t.Errorf("%s %q: %s returned %v, want ErrCorrupt and what is", column, spoilt, method, err)
				}
			}
			execute(t, db, "UPDATE sallyport_keys SET "+column+" = '"+string(before)+"'")
		}
	})
}

// identifiers sets each of those that a key has to a text.
func identifiers(text string) map[string]func(k *keystore.Key) {
	return map[string]func(k *keystore.Key){
		"ID":           func(k *keystore.Key) { k.ID = text },
		"Organization": func(k *keystore.Key) { k.Organization = text },
		"Environment":  func(k *keystore.Key) { k.Environment = keystore.Environment(text) },
		"Hint":         func(k *keystore.Key) { k.Hint = text },
		"CreatedBy":    func(k *keystore.Key) { k.CreatedBy = text },
		"IssueToken":   func(k *keystore.Key) { k.IssueToken = text },
		"RotatedFrom":  func(k *keystore.Key) { k.RotatedFrom = text },
		"Legacy":       func(k *keystore.Key) { k.Legacy = text },
	}
}

// wantRefused inserts a key with each field spoilt: the error has to have
// words.
func wantRefused(
	t *testing.T, s *keysql.Store, spoil map[string]func(*keystore.Key), words func(field string) []string,
) {
	t.Helper()
	for field, set := range spoil {
		k := newKey("acme")
		set(k)
		sqltest.MustSay(t, "Insert with another "+field, insert(t.Context(), s, k), words(field)...)
		if _, err := s.Lookup(t.Context(), k.Digest); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Lookup of a key that Insert refused for its %s returned %v", field, err)
		}
	}
}

// Postgres cannot store a NUL byte or text that is not UTF-8. The stores refuse
// it in all databases with the same words, and find no key by such a text, nor
// by a status or an environment that there is not: blanks and case count.
func TestNotText(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		for _, bad := range []string{"nul \x00", "\x00", "not UTF-8 \xff"} {
			spoil := identifiers(bad)
			spoil["Name"] = func(k *keystore.Key) { k.Name = bad }
			spoil["attribute"] = func(k *keystore.Key) { k.Attributes = map[string]string{"plan": bad} }
			spoil["the name of"] = func(k *keystore.Key) { k.Attributes = map[string]string{bad: "plan"} }
			spoil["scope"] = func(k *keystore.Key) { k.Scopes = []scope.Name{scope.TasksRead, scope.Name(bad)} }
			wantRefused(t, store, spoil, func(field string) []string { return []string{field, "UTF-8"} })

			name, id := k.Clone(), k.Clone()
			name.Name, id.ID = bad, bad
			if err := store.Update(t.Context(), name, newEntry(name)); err == nil || !strings.Contains(err.Error(), "Name") {
				t.Errorf("Update with the name %q returned %v, want an error that says what is wrong", bad, err)
			}
			_, findErr := store.Find(t.Context(), "acme", bad)
			_, issuedErr := store.FindIssued(t.Context(), "acme", "user_1", bad)
			_, usageErr := store.Usage(t.Context(), "acme", bad)
			for method, err := range map[string]error{"Update": store.Update(t.Context(), id, newEntry(id)), "Find": findErr,
				"FindIssued": issuedErr, "Usage": usageErr} {
				if !errors.Is(err, keystore.ErrNotFound) {
					t.Errorf("%s of %q returned %v, want ErrNotFound: there can be no such key", method, bad, err)
				}
			}
			for _, q := range []issuing.Query{
				{After: &keystore.Key{CreatedAt: time.Now(), ID: bad}}, {Environment: keystore.Environment(bad)},
				{Status: keystore.Status(bad)}, {Environment: " "}, {Environment: "PRODUCTION"},
				{Environment: "production "}, {Status: " "}, {Status: "ACTIVE"}, {Status: "active "},
			} {
				if page, err := store.List(t.Context(), "acme", q); len(page.Keys) > 0 || err != nil {
					t.Errorf("List of %+v returned %d keys and %v, want an empty page", q, len(page.Keys), err)
				}
			}
		}
		none, noneStored := newKey("acme"), k.Clone()
		none.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), {}}
		noneStored.Networks = none.Networks
		for method, err := range map[string]error{"Insert": store.Insert(t.Context(), none, newEntry(none), 0),
			"Update": store.Update(t.Context(), noneStored, newEntry(k))} {
			sqltest.MustSay(t, method+" of the zero Prefix, which could not be read again", err, "a network is invalid Prefix")
		}
		if got := lookup(t, store, k); got.Version != 1 {
			t.Errorf("a change that was refused made version %d", got.Version)
		}
	})
}

// Times are kept to the microsecond, and an end is never later than asked for.
func TestNanoseconds(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		for _, second := range []int64{0, 1_767_225_599, -1} {
			k := newKey("acme")
			k.ExpiresAt = time.Unix(second, 999_999_999)
			mustInsert(t, store, k)
			if got, want := lookup(t, store, k).ExpiresAt, time.Unix(second, 999_999_000); !got.Equal(want) ||
				got.Location() != time.UTC {
				t.Errorf("ExpiresAt %v came back as %v, want %v", k.ExpiresAt, got, want.UTC())
			}
		}
	})
}
