package keystore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func TestAttributeLimits(t *testing.T) {
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
		k := valid()
		k.Attributes = c.attributes
		if err := k.Validate(scope.Default()); !says(err, "attributes", c.want) {
			t.Errorf("Validate with %.60v returned %v, want the problem %q", c.attributes, err, c.want)
		}
	}
	k := valid()
	k.Attributes = map[string]string{"b b": "x", "a a": "x"}
	wrong, _ := errors.AsType[*keystore.FieldsError](k.Validate(scope.Default()))
	if wrong == nil || len(wrong.Fields) != 2 || !strings.Contains(wrong.Fields[0].Message, "a a") {
		t.Errorf("Validate returned %v, want both problems in order", wrong)
	}
}
