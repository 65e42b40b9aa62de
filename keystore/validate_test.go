package keystore_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// valid is a key that may be issued.
func valid() *keystore.Key {
	return &keystore.Key{Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead}}
}

// says reports whether the error is one problem with the field, with this text;
// an empty text is no error.
func says(err error, field, text string) bool {
	wrong, ok := errors.AsType[*keystore.FieldsError](err)
	if text == "" {
		return err == nil
	}
	return ok && len(wrong.Fields) == 1 && wrong.Fields[0].Field == field &&
		strings.Contains(wrong.Fields[0].Message, text)
}

func TestValidate(t *testing.T) {
	a := strings.Repeat
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, c := range []struct {
			field string
			spoil func(k *keystore.Key)
			want  string // of the problem; empty: none
		}{
			{"", func(k *keystore.Key) {}, ""},
			{"organization", func(k *keystore.Key) { k.Organization = "" }, "The organization is missing."},
			{"organization", func(k *keystore.Key) { k.Organization = a("a", 255) }, ""},
			{"organization", func(k *keystore.Key) { k.Organization = a("a", 256) },
				"The organization is longer than 255 bytes."},
			{"organization", func(k *keystore.Key) { k.Organization = "a\x00" }, "The organization is not valid UTF-8 text."},
			{"issue_token", func(k *keystore.Key) { k.IssueToken = a("a", 256) }, "The issue token is longer than 255 bytes."},
			{"issue_token", func(k *keystore.Key) { k.IssueToken = "\xff" }, "The issue token is not valid UTF-8 text."},
			{"name", func(k *keystore.Key) { k.Name = a("ü", 100) }, ""},
			{"name", func(k *keystore.Key) { k.Name = a("a", 101) }, "The name is longer than 100 characters."},
			{"name", func(k *keystore.Key) { k.Name = "\xff" }, "The name is not valid UTF-8 text."},
			{"name", func(k *keystore.Key) { k.Name = "a\nb" }, "The name has a control character, such as a line break."},
			{"name", func(k *keystore.Key) { k.Name = "a\u2028b" }, "The name has a control character"},
			{"name", func(k *keystore.Key) { k.Name = "a\u202eb" }, "The name has a control character"},
			{"name", func(k *keystore.Key) { k.Name = "a\u2066b" }, "The name has a control character"},
			{"name", func(k *keystore.Key) { k.Name = "\u200b \u3164\ufe0f" }, "The name has no character that can be seen."},
			{"name", func(k *keystore.Key) { k.Name = "\u2800" }, "The name has no character that can be seen."},
			{"name", func(k *keystore.Key) {
				k.Name = "ཧཱུྃ 1\ufe0f\u20e3 👩🏽\u200d💻" + a("e\u0301\u0323\u0301\u0323", 10)
			}, ""},
			{"name", func(k *keystore.Key) { k.Name = "e" + a("\u0301", 4) + "\u200d\u0301" },
				"The name has more than 4 combining marks in a row."},
			{"environment", func(k *keystore.Key) { k.Environment = "" }, `The environment must be "production" or "sandbox".`},
			{"scopes", func(k *keystore.Key) { k.Scopes = nil }, ""},
			{"scopes", func(k *keystore.Key) { k.Scopes = []scope.Name{"task:read"} },
				`There is no scope "task:read"; did you mean "tasks:read"?`},
			{"scopes", func(k *keystore.Key) { k.Scopes = []scope.Name{"parcels"} }, `There is no scope "parcels".`},
			{"expires_at", func(k *keystore.Key) { k.ExpiresAt = now.Add(time.Microsecond) }, ""},
			{"expires_at", func(k *keystore.Key) { k.ExpiresAt = now }, "The expiry must lie in the future."},
			{"expires_at", func(k *keystore.Key) { k.ExpiresAt = now.Add(time.Nanosecond) },
				"The expiry must lie in the future."},
			{"expires_at", func(k *keystore.Key) { k.ExpiresAt = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }, ""},
			{"expires_at", func(k *keystore.Key) { k.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
				"The expiry must lie before the year 10000."},
		} {
			k := valid()
			c.spoil(k)
			if err := k.Validate(nil); !says(err, c.field, c.want) {
				t.Errorf("got %v, want the problem %q with %s", err, c.want, c.field)
			}
		}
	})
}

// All that is wrong comes at once, in the order of a form.
func TestValidateSaysAllAtOnce(t *testing.T) {
	k := &keystore.Key{Name: "\n", IssueToken: "\xff", Scopes: []scope.Name{"x", "y"}, ExpiresAt: time.Unix(1, 0),
		Attributes: map[string]string{"b b": "x", "a a": "x"}, Networks: make([]netip.Prefix, 2)}
	err := k.Validate(scope.Default())
	wrong, ok := errors.AsType[*keystore.FieldsError](err)
	if !ok {
		t.Fatalf("got %v, want a FieldsError", err)
	}
	var fields []string
	for _, f := range wrong.Fields {
		fields = append(fields, f.Field)
		if !strings.Contains(err.Error(), f.Field+": "+f.Message) {
			t.Errorf("the error %v lacks %q", err, f.Message)
		}
	}
	want := []string{"organization", "issue_token", "name", "environment", "scopes", "scopes", "attributes", "attributes",
		"networks", "networks", "expires_at"}
	if !slices.Equal(fields, want) || strings.Index(err.Error(), "a a") > strings.Index(err.Error(), "b b") {
		t.Errorf("got problems with %q, want %q, the attributes in order: %v", fields, want, err)
	}
}

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
		{map[string]string{"a": "x\n"}, `The value of the attribute "a" has a control character, such as a line break.`},
	} {
		k := valid()
		k.Attributes = c.attributes
		if err := k.Validate(scope.Default()); !says(err, "attributes", c.want) {
			t.Errorf("Validate with %.60v returned %v, want the problem %q", c.attributes, err, c.want)
		}
	}
}
