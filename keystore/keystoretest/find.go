package keystoretest

import (
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

var findCases = []testCase{
	{"Find/Record", func(t test) {
		k := newKey(unique("org"))
		t.insert(newKey(k.Organization), k)
		t.same("Find", t.find(k), k)
		_, err := t.Find(t.Context(), k.Organization, unique("key"))
		t.wantError(err, keystore.ErrNotFound, "Find of an id that no key has")
	}},

	{"Find/OtherOrganization", func(t test) {
		k, other := t.inserted(), t.inserted()
		_, err := t.Find(t.Context(), other.Organization, k.ID)
		t.wantError(err, keystore.ErrNotFound, "Find of another organization's key")
		_, err = t.Find(t.Context(), "", k.ID)
		t.wantError(err, keystore.ErrNotFound, "Find without an organization")
	}},

	{"FindIssued/Record", func(t test) {
		k := t.inserted()
		got, err := t.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
		t.noError(err, "FindIssued of a token that made a key")
		t.same("FindIssued", got, k)
	}},

	{"FindIssued/Others", func(t test) {
		k := newKey(unique("org"))
		none := newKey(k.Organization)
		none.CreatedBy, none.IssueToken = k.CreatedBy, ""
		t.insert(k, none)
		for _, c := range []struct{ rule, organization, actor, token string }{
			{"of another organization", unique("org"), k.CreatedBy, k.IssueToken},
			{"of another creator", k.Organization, unique("user"), k.IssueToken},
			{"with a token nobody used", k.Organization, k.CreatedBy, unique("token")},
			{"with an empty token, beside a key that has none", k.Organization, k.CreatedBy, ""},
		} {
			_, err := t.FindIssued(t.Context(), c.organization, c.actor, c.token)
			t.wantError(err, keystore.ErrNotFound, "FindIssued "+c.rule)
		}
	}},

	{"Find/Owned", func(t test) {
		k := t.inserted()
		spoil(t.find(k))
		if got, err := t.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken); err == nil {
			spoil(got)
		}
		if page, err := t.List(t.Context(), k.Organization, issuing.Query{}); err == nil && len(page.Keys) > 0 {
			spoil(page.Keys[0])
		}
		t.keeps(k, "a key after a caller changed those it had been given")
	}},
}
