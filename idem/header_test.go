package idem_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

var keyTests = []struct {
	name, value string
	want        string // empty: refused
}{
	{"bare", "abc", "abc"},
	{"quoted", `"abc"`, "abc"},
	{"a UUID", "8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"},
	{"one character", "a", "a"},
	{"escaped quotation mark", `"a\"b"`, `a"b`},
	{"escaped backslash", `"a\\b"`, `a\b`},
	{"nothing but escapes", `"\\\""`, `\"`},
	{"bare with a quotation mark", `a"b`, `a"b`},
	{"bare with a backslash", `a\b`, `a\b`},
	{"quoted comma and semicolon", `"a,b;c=1"`, "a,b;c=1"},
	{"bare comma and semicolon", "a,b;c=1", "a,b;c=1"},
	{"spaces around", " \tabc \t", "abc"},
	{"spaces around a quoted one", ` "abc" `, "abc"},
	{"spaces within quotation marks", `" abc "`, " abc "},
	{"a space within", "a b", "a b"},
	{"all of printable ASCII", "#$%&'()*+,-./0:;<=>?@A[]^_`a{|}~!", "#$%&'()*+,-./0:;<=>?@A[]^_`a{|}~!"},
	{"255 bytes", strings.Repeat("k", 255), strings.Repeat("k", 255)},
	{"255 bytes quoted", `"` + strings.Repeat("k", 255) + `"`, strings.Repeat("k", 255)},
	{"255 bytes, all escaped", `"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255)},

	{"empty", "", ""},
	{"spaces alone", " \t ", ""},
	{"empty in quotation marks", `""`, ""},
	{"256 bytes", strings.Repeat("k", 256), ""},
	{"256 bytes quoted", `"` + strings.Repeat("k", 256) + `"`, ""},
	{"256 bytes, all escaped", `"` + strings.Repeat(`\"`, 256) + `"`, ""},
	{"a megabyte", strings.Repeat("k", 1<<20), ""},
	{"a megabyte quoted", `"` + strings.Repeat(`\\`, 1<<19) + `"`, ""},
	{"a megabyte unterminated", `"` + strings.Repeat(`k`, 1<<20), ""},
	{"parameter", `"abc";p=1`, ""},
	{"parameter after an escape", `"a\"bc";p=1`, ""},
	{"a list", `"abc", "def"`, ""},
	{"text after the string", `"abc"def`, ""},
	{"a space and a parameter", `"abc" ;p`, ""},
	{"unterminated", `"abc`, ""},
	{"a quotation mark alone", `"`, ""},
	{"ends in an escaped quotation mark", `"abc\"`, ""},
	{"ends in a backslash", `"abc\`, ""},
	{"escape of another character", `"a\bc"`, ""},
	{"a control character", "a\x00b", ""},
	{"a line break", "a\r\nb", ""},
	{"a tab", "a\tb", ""},
	{"a tab within quotation marks", "\"a\tb\"", ""},
	{"an escaped control character", "\"a\\\x01b\"", ""},
	{"a control character after an escape", "\"\\\\\x01b\"", ""},
	{"the last control character", "a\x1fb", ""},
	{"delete", "a\x7fb", ""},
	{"not ASCII", "schlüssel", ""},
	{"not UTF-8", "a\xffb", ""},
	{"not ASCII, quoted", `"schlüssel"`, ""},
}

func TestParseKey(t *testing.T) {
	for _, test := range keyTests {
		got, err := idem.ParseKey([]string{test.value})
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %.40q, error %v, want %.40q", test.name, got, err, test.want)
		}
	}
}

func TestParseKeyCountsValues(t *testing.T) {
	for _, values := range [][]string{nil, {}, {"a", "a"}, {"a", "b"}, {"", "a"}, {"a", ""}} {
		if got, err := idem.ParseKey(values); err == nil {
			t.Errorf("%q: got %q, want an error", values, got)
		}
	}
	_, none := idem.ParseKey(nil)
	_, two := idem.ParseKey([]string{"a", "a"})
	if none.Error() == two.Error() {
		t.Errorf("got %v for no key and for two", none)
	}
}

// A quoted key and the bare one are one key, so that a client may change its
// habit between two tries.
func TestParseKeyQuotedOrBare(t *testing.T) {
	for _, key := range []string{"abc", "a b", "a,b", "a;b=c", "8e03978e-40d5-43dd-bc93-6894a57f9324"} {
		bare, _ := idem.ParseKey([]string{key})
		quoted, _ := idem.ParseKey([]string{`"` + key + `"`})
		if bare != key || quoted != key {
			t.Errorf("%q: got %q bare and %q quoted", key, bare, quoted)
		}
	}
}

// Every error tells the client what is wrong in a text that contains nothing of
// what it sent.
func TestParseKeyErrors(t *testing.T) {
	for _, test := range []struct{ value, says string }{
		{"", "empty"}, {strings.Repeat("Q", 300), "longer than 255 bytes"}, {"QQ\x00QQ", "printable ASCII"}, {`"QQQ`, "close"},
		{`"QQQ\`, "close"}, {`"QQ\QQ"`, "backslash"}, {`"QQ";QQ=QQ`, "after"},
	} {
		_, err := idem.ParseKey([]string{test.value})
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "QQ") {
			t.Errorf("%.40q: got error %v, want one that says %q and does not repeat the value", test.value, err, test.says)
		}
	}
	if _, err := idem.ParseKey([]string{"QQ", "QQ"}); err == nil || !strings.Contains(err.Error(), "more than once") {
		t.Errorf("sent twice: got error %v", err)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, test := range keyTests {
		f.Add(test.value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := idem.ParseKey([]string{value})
		if err != nil {
			if key != "" {
				t.Errorf("%q: got %q with an error", value, key)
			}
			return
		}
		if len(key) == 0 || len(key) > 255 {
			t.Errorf("%q: got a key of %d bytes", value, len(key))
		}
		for i := range len(key) {
			if key[i] < ' ' || key[i] > '~' {
				t.Errorf("%q: got a key with the byte %#x", value, key[i])
			}
		}
		// Every key can be written as a string, which names the same key.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idem.ParseKey([]string{quoted}); again != key || err != nil {
			t.Errorf("%q: got %q, but %q, error %v, for %q", value, key, again, err, quoted)
		}
	})
}
