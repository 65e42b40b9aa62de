package keystoretest

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

var findCases = []testCase{
	{"Find/Record", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		insert(t, m, newKey(k.Organization), k)
		same(t, "Find", find(t, m, k), k)
		_, err := m.Find(t.Context(), k.Organization, unique("key"))
		wantError(t, err, keystore.ErrNotFound, "Find of an id that no key has")
	}},

	{"Find/OtherOrganization", func(t testing.TB, m issuing.Store) {
		k, other := inserted(t, m), inserted(t, m)
		_, err := m.Find(t.Context(), other.Organization, k.ID)
		wantError(t, err, keystore.ErrNotFound, "Find of another organization's key")
		_, err = m.Find(t.Context(), "", k.ID)
		wantError(t, err, keystore.ErrNotFound, "Find without an organization")
	}},

	{"FindIssued/Record", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		same(t, "FindIssued", findIssued(t, m, k), k)
	}},

	{"FindIssued/Others", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		none := newKey(k.Organization)
		none.CreatedBy, none.IssueToken = k.CreatedBy, ""
		insert(t, m, k, none)
		for _, c := range []struct{ rule, organization, actor, token string }{
			{"of another organization", unique("org"), k.CreatedBy, k.IssueToken},
			{"of another creator", k.Organization, unique("user"), k.IssueToken},
			{"with a token nobody used", k.Organization, k.CreatedBy, unique("token")},
			{"with an empty token, beside a key that has none", k.Organization, k.CreatedBy, ""},
		} {
			_, err := m.FindIssued(t.Context(), c.organization, c.actor, c.token)
			wantError(t, err, keystore.ErrNotFound, "FindIssued "+c.rule)
		}
	}},

	{"Find/Owned", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		spoil := func(got *keystore.Key) {
			got.Organization, got.Name, got.RevokedAt = "changed", "changed", at(0)
			spoilShared(got)
		}
		spoil(find(t, m, k))
		if got, err := m.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken); err == nil {
			spoil(got)
		}
		if page, err := m.List(t.Context(), k.Organization, issuing.Query{}); err == nil && len(page.Keys) > 0 {
			spoil(page.Keys[0])
		}
		same(t, "Find, after a caller changed the keys it had been given,", find(t, m, k), k)
		same(t, "Lookup, after a caller changed the keys it had been given,", lookup(t, m, k), k)
	}},
}
