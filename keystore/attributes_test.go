package keystore_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestAttributeLimits(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	many := func(n int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprint("a", i)] = "x"
		}
		return m
	}
	withEmpty := many(16)
	withEmpty["b"] = ""
	for _, c := range []struct {
		attributes map[string]string
		want       string // of the problem; empty: none
	}{
		{nil, ""},
		{map[string]string{}, ""},
		{map[string]string{"b": ""}, ""},
		{many(16), ""},
		{withEmpty, ""},
		{many(17), "There are 17 attributes; a key has at most 16."},
		{map[string]string{strings.Repeat("a", 40): strings.Repeat("x", 200)}, ""},
		{map[string]string{"aZ09_-.": "Grüße, 世界 and <b>"}, ""},
		{map[string]string{"": "x"}, "An attribute has no name."},
		{map[string]string{strings.Repeat("a", 41): "x"}, `The attribute name "` + strings.Repeat("a", 40) +
			`" is longer than 40 bytes.`},
		{map[string]string{"a b": "x"},
			`The attribute name "a b" has other characters than letters, digits, _, - and full stops.`},
		{map[string]string{"größe": "x"}, `The attribute name "größe" has`},
		{map[string]string{"a\xff": "x"}, `The attribute name "a\xff" has`},
		{map[string]string{"\u0161": "x"}, `has other characters`}, // U+0161 would be "a" as a byte
		{map[string]string{"a": strings.Repeat("x", 201)}, `The value of the attribute "a" is longer than 200 bytes.`},
		{map[string]string{"a": "\xff"}, `The value of the attribute "a" is not valid UTF-8 text.`},
		{map[string]string{"a": "\u202ex"}, `The value of the attribute "a" has a control character`},
		{map[string]string{"a": "x\n"},
			`The value of the attribute "a" has a control character, such as a line break.`},
	} {
		g := grant()
		g.Attributes = c.attributes
		_, k, err := issuer.Issue(t.Context(), g)
		if c.want == "" {
			want := maps.Clone(c.attributes)
			delete(want, "b")
			if err != nil || !maps.Equal(k.Attributes, want) || len(want) == 0 && k.Attributes != nil {
				t.Errorf("Issue with %v returned %v and %v, want them", c.attributes, k, err)
			}
			continue
		}
		var problems *keystore.FieldsError
		if !errors.As(err, &problems) || len(problems.Fields) != 1 || problems.Fields[0].Field != "attributes" ||
			!strings.Contains(problems.Fields[0].Message, c.want) {
			t.Errorf("Issue with %.60v returned %v, want the problem %q", c.attributes, err, c.want)
		}
	}
	g := grant()
	g.Attributes = map[string]string{"b b": "x", "a a": "x"}
	var problems *keystore.FieldsError
	if _, _, err := issuer.Issue(t.Context(), g); !errors.As(err, &problems) || len(problems.Fields) != 2 ||
		!strings.Contains(problems.Fields[0].Message, "a a") {
		t.Errorf("Issue returned %v, want both problems in order", err)
	}
}

func TestAttribute(t *testing.T) {
	k := &keystore.Key{Attributes: map[string]string{"plan": "pro"}}
	if k.Attributes["plan"] != "pro" || k.Attributes["team"] != "" || (&keystore.Key{}).Attributes["plan"] != "" {
		t.Error("Attribute does not return the value, or not \"\" without one")
	}
}

// A grant that its caller changes later does not change the key.
func TestAttributesAreCopied(t *testing.T) {
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{})
	g := grant()
	g.Attributes, g.Networks = map[string]string{"plan": "pro"}, prefixes("10.0.0.0/8")
	_, k := issue(t, issuer, g)
	g.Attributes["plan"] = "free"
	secret, next, err := issuer.By("ada", "").Rotate(t.Context(), "acme", k.ID, 0, "")
	if err != nil || k.Attributes["plan"] != "pro" || next.Attributes["plan"] != "pro" || len(next.Networks) != 1 ||
		next.Networks[0] != g.Networks[0] || secret == (keystore.Secret{}) {
		t.Errorf("after a rotation the key has %v and %v, %v, want those of the old one", next.Attributes,
			next.Networks, err)
	}
}
