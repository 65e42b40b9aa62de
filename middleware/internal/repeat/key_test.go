package repeat_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
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

func TestKey(t *testing.T) {
	for _, test := range keyTests {
		got, err := repeat.Key([]string{test.value})
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %.40q, error %v, want %.40q", test.name, got, err, test.want)
		}
	}
}

// Every error tells the client what is wrong in a text that contains nothing of
// what it sent.
func TestKeyErrors(t *testing.T) {
	for _, test := range []struct {
		values []string
		says   string
	}{
		{[]string{"QQ", "QQ"}, "more than once"}, {[]string{"QQ", ""}, "more than once"},
		{[]string{""}, "is empty"}, {[]string{strings.Repeat("Q", 300)}, "longer than 255 bytes"},
		{[]string{"QQ\x00QQ"}, "printable ASCII"}, {[]string{`"QQQ`}, "none at its end"},
		{[]string{`"QQQ\`}, "none at its end"},
		{[]string{`"QQ\QQ"`}, "backslash"}, {[]string{`"QQ";QQ=QQ`}, "after its closing"},
	} {
		_, err := repeat.Key(test.values)
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "QQ") {
			t.Errorf("%.40q: got error %v, want one that says %q and does not repeat the value", test.values, err,
				test.says)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, test := range keyTests {
		f.Add(test.value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := repeat.Key([]string{value})
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
		// Every key can be written as a string, which names the same key: a
		// client may change its habit between two tries.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := repeat.Key([]string{quoted}); again != key || err != nil {
			t.Errorf("%q: got %q, but %q, error %v, for %q", value, key, again, err, quoted)
		}
	})
}
