package keystoretest

import (
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// oddTexts are hard to quote, to escape, to compare or to fold.
var oddTexts = []string{
	"",
	" ",
	"'; DROP TABLE keys; --",
	`"quoted" and \escaped\ and ?1 $1 :name @name %s %%`,
	"tab\tline\nreturn\r\n",
	"{a,b} [c] (d) <e>",
	"Grüße, 世界 and 🔑 \U0001F469\u200D\U0001F4BB",
	"\u202Eright to left, \uFEFF mark, \uFFFD replacement",
	"NULL",
	strings.Repeat("0123456789 é", 15),
}

var textCases = []testCase{
	{"Text/Fields", func(t test) {
		organization := unique("org")
		for _, text := range oddTexts {
			k := newKey(organization + text)
			k.ID += text
			k.Name, k.CreatedBy, k.IssueToken, k.RotatedFrom, k.Legacy = text, text, text, text, text
			k.Attributes = map[string]string{text: "odd name", "odd value": text}
			t.insert(k)
			t.keeps(k, "a key of odd texts")
		}
	}},

	{"Text/Distinct", func(t test) {
		// Each pair is equal to something that folds case, pads or normalizes.
		for _, pair := range [][2]string{
			{"acme", "Acme"}, {"acme", "acme "}, {"caf\u00e9", "cafe\u0301"}, {"straße", "strasse"},
		} {
			base := unique("org")
			a, b := newKey(base+pair[0]), newKey(base+pair[1])
			b.ID = a.ID + "x"
			b.CreatedBy, b.IssueToken = a.CreatedBy, a.IssueToken
			t.insert(a, b)
			for _, k := range []*keystore.Key{a, b} {
				t.wantPages(k.Organization, issuing.Query{}, "of an organization whose name is almost another's", k)
			}
			t.unknown("Find of a key of almost the same organization")(t.Find(t.Context(), b.Organization, a.ID))

			// Keys of one organization, told apart by one field each.
			keys := make(map[string]*keystore.Key)
			for _, text := range pair {
				id, creator, token, next := newKey(base), newKey(base), newKey(base), newKey(base)
				id.ID, next.RotatedFrom = base+text, base+text
				creator.CreatedBy, creator.IssueToken = text, base
				token.CreatedBy, token.IssueToken = base, text
				keys["the ID "+text], keys["an IssueToken of the creator "+text] = id, creator
				keys["the IssueToken "+text], keys["the successor of "+text] = token, next
			}
			t.insertEach(keys)
			for rule, k := range keys {
				t.keeps(k, rule)
			}
		}
	}},

	{"Text/Attributes", func(t test) {
		for _, attributes := range []map[string]string{
			nil,
			{},
			{"plan": "pro", "Plan": "free", "plan ": "none", "a.b-c_d": ""},
			{"plan": "null", "list": `["a"]`, "object": `{"a":"b"}`, "number": "1e3", "large": strings.Repeat("x", 200)},
		} {
			k := newKey(unique("org"))
			k.Attributes = attributes
			t.survives(k, "the bytes of attributes")
		}
	}},

	{"Text/UnknownScopes", func(t test) {
		for _, names := range [][]scope.Name{
			nil,
			{"future:thing", scope.TasksRead, "tasks:*", "TASKS:READ", "tasks:read "},
			{"a,b", "c d", `"e"`, "{f}", `g\`, "", "NULL"},
		} {
			k := newKey(unique("org"))
			k.Scopes = names
			t.survives(k, "unknown scopes and the order of scopes")
		}
	}},
}
