package repeat_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
)

func byValue(body string) ([32]byte, bool) {
	return repeat.Content{Method: "POST", ContentType: "application/json", Body: []byte(body)}.ByValue()
}

func TestByValue(t *testing.T) {
	for _, same := range [][]string{
		{"1", "1.0", " 1 ", "1e0", "10e-1", "0.1E+1", "1.000", "0.01e2", "100E-02"},
		{"100", "1e2", "1E2", "1e+2", "10.0e1", "0.1e3"},
		{"0", "-0", "0.0", "-0.0e7", "0e999999999999"},
		{"-1.5", "-15e-1", "-1.50"},
		{"9007199254740993", "9007199254740993.0"},
		{`{"a":1,"b":[true,null]}`, "{\"b\" : [ true , null ],\n\"a\":1.0}", `{"\u0061":1,"b":[true,null]}`},
		{`"é\n/"`, `"\u00e9\u000a\/"`, `"\u00E9\n\/"`},
		{`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		{`{"a":{"x":1,"y":2},"b":{}}`, `{"b":{},"a":{"y":2,"x":1}}`},
		{"[]", " [ ] "}, {"{}", "{\t}"},
	} {
		want, ok := byValue(same[0])
		for _, body := range same {
			if got, also := byValue(body); got != want || !ok || !also {
				t.Errorf("%s and %s are not the same", same[0], body)
			}
		}
	}
	apart := make(map[[32]byte]string)
	for _, body := range []string{
		"1", "-1", "10", "0", "0.1", "1e1000", "1e1001", "-1e1000", "9007199254740992", "9007199254740993",
		"9007199254740993.5", "1e-400", "2e-400", "0.30000000000000004", "0.3",
		`"1"`, `"1.0"`, `"1e0;"`, "true", "false", "null",
		`"true"`, `""`, "[]", "{}", "[[]]", "[[],[]]", "[1,2]", "[2,1]", "[12]", "[1,[2]]", `["12"]`, `["1","2"]`, `{"a":1}`,
		`{"a":"1"}`, `{"a":null}`, `{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"a":1,"b":2}`, `{"a":2,"b":1}`, `{"":1}`,
		`["a",1]`, `{"A":1}`, `"é"`, `"e\u0301"`, `"a\u0000"`, `"a"`,
		"[10,0]", "[1e10]", "[1e1,1]", "[1e11]", "[0,0]", "[-0]", "[false]", "[null]", `["f"]`, "�",
	} {
		f, ok := byValue(body)
		if other, taken := apart[f]; taken || ok == (body == "�") {
			t.Errorf("%s and %s are the same, or it has no value: %t", body, other, ok)
		}
		if apart[f] = body; !ok {
			delete(apart, f)
		}
	}
	for _, body := range []string{
		"", " ", "{", `{"a":1,"a":1}`, `{"a":1,"\u0061":1}`, `{"a":1,"A":2}`, `{"k":1,"\u212a":2}`,
		`[{"b":{"c":1,"d":2,"c":1}}]`, `"\ud800"`, `"\udc00\ud800"`,
		`{"\ud800":1}`, `["x\ufffd\n"]`, "\"\xff\"", "\ufeff{}",
		"01", "1.", "+1", "NaN", "{}{}", `{"a":1,}`, "1e99999999999999999999",
		"1e-99999999999999999999", "'a'", "// x\n1",
		strings.Repeat("[", 101) + strings.Repeat("]", 101), strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6),
		strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101), strings.Repeat(`{"a":`, 1e6),
	} {
		if _, ok := byValue(body); ok {
			t.Errorf("%.40s has a value", body)
		}
	}
	if _, ok := byValue(strings.Repeat("[", 100) + strings.Repeat("]", 100)); !ok {
		t.Error("a hundred levels are too many")
	}
}

// What is not the body is compared as before, but the parameters of the type. A
// fingerprint by value is none by bytes, whatever the body.
func TestByValueOfTheRest(t *testing.T) {
	c := repeat.Content{Method: "POST", Host: "a", Target: "/t?a=1", Range: "bytes=0-1",
		ContentType: "application/json", Body: []byte("{}")}
	want, ok := c.ByValue()
	if !ok || !repeat.IsByValue(want) || repeat.IsByValue(c.Fingerprint()) {
		t.Fatal("no fingerprint, or which is by value cannot be seen")
	}
	text := strings.Repeat("x", 600)
	form := string(binary.AppendUvarint([]byte{'"'}, 600)) + text
	if f, _ := byValue(`"` + text + `"`); f == (repeat.Content{
		Method: "POST", ContentType: "application/json", Body: []byte(form)}.Fingerprint()) {
		t.Error("the bytes of a form are taken for the value")
	}
	c.ContentType = "Application/JSON ; charset=utf-8"
	if got, _ := c.ByValue(); got != want {
		t.Error("a parameter of the type counts")
	}
	for name, change := range map[string]func(*repeat.Content){
		"method": func(c *repeat.Content) { c.Method = "PUT" }, "host": func(c *repeat.Content) { c.Host = "b" },
		"target": func(c *repeat.Content) { c.Target = "/t?a=2" }, "range": func(c *repeat.Content) { c.Range = "" },
		"type": func(c *repeat.Content) { c.ContentType = "application/merge-patch+json" },
	} {
		other := c
		if change(&other); true {
			if got, ok := other.ByValue(); !ok || got == want {
				t.Errorf("another %s is the same: %t", name, ok)
			}
		}
	}
	for _, mediaType := range []string{"", "text/plain", "application/x-www-form-urlencoded",
		"application/jsonl", "text/json"} {
		c.ContentType = mediaType
		if _, ok := c.ByValue(); ok {
			t.Errorf("a body of the type %q has a value", mediaType)
		}
	}
}

// A fingerprint by value is that of each version of Go, also where its Unicode
// has other letters: 𐵰 (U+10D70) is one from Go 1.27 on, and its upper case
// stands before U+10D60. Processes of two versions share the records.
func TestByValueStays(t *testing.T) {
	for body, want := range map[string]string{
		"{\"\U00010d70\":1,\"\U00010d60\":2}": "4a534f4e689710e19d893972470e1ab83a215ca62ef1d3d1b3eae1e095e49321",
		`{"b":[1.50,-2e3,"é\u0041",null],"Aa":{"x":true,"":{}},"ab":"` + strings.Repeat("y", 200) +
			`"}`: "4a534f4e78fe686aab064c595673c6ea36ddad0f81207a8b8efa9b2dd8df5412",
	} {
		if f, ok := byValue(body); fmt.Sprintf("%x", f) != want || !ok {
			t.Errorf("%.40s: got %x, want %s", body, f, want)
		}
	}
}

// However a body is made, its value takes no more memory than ValueRoom says,
// and a body over 64 KiB has none.
func TestValueRoom(t *testing.T) {
	const size = 64 << 10
	fill := func(begin, end string, item func(n int) string) string {
		b := []byte(begin)
		for n := 0; ; n++ {
			next := item(n)
			if len(b)+len(next)+len(end) > size {
				return string(b) + strings.Repeat(" ", size-len(b)-len(end)) + end
			}
			b = append(b, next...)
		}
	}
	same := func(item string) func(int) string { return func(int) string { return item } }
	for name, body := range map[string]string{
		"objects": fill("[", "1]", same(`{"a":1},`)),
		"empty":   fill("[", "1]", same(`{"":{}},`)),
		"numbers": fill("[", "1]", same("1,")),
		"members": fill("{", `"":1}`, func(n int) string { return fmt.Sprintf(`"%x":1,`, n*7919%65521) }),
		"escaped": fill("{", `"":1}`, func(n int) string { return fmt.Sprintf(`"\\u%04x":1,`, 0x3000+n) }),
		"escapes": fill("[", "1]", same(`"\/",`)),
		"string":  fill(`"`, `"`, same(`\n`)),
		"deep":    fill(strings.Repeat(`{"b":`, 99)+`"`, `"`+strings.Repeat(`,"a":1}`, 99), same("x")),
		"growing": fill(`{"a":1`, `}`, func(n int) string {
			return fmt.Sprintf(`,"%d":{"a":[%s1]}`, n, strings.Repeat("1,", 100*n))
		}),
	} {
		c := repeat.Content{ContentType: "application/json", Body: []byte(body)}
		if _, ok := c.ByValue(); !ok || len(body) != size {
			t.Fatalf("%s: %d bytes have the value %t: %.50s", name, len(body), ok, body)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.ByValue()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(c.ValueRoom()) || c.ValueRoom() != 20*size {
			t.Errorf("%s: %d bytes for a body of %d, want at most %d", name, took, len(body), c.ValueRoom())
		}
		c.Body = append(c.Body, ' ')
		if _, ok := c.ByValue(); ok || c.ValueRoom() != 0 {
			t.Errorf("%s: a byte more, and there is a value %t, with room for %d", name, ok, c.ValueRoom())
		}
	}
}

// FuzzByValue compares with encoding/json and math/big: two bodies have one
// fingerprint exactly if they have one value.
func FuzzByValue(f *testing.F) {
	for _, pair := range [][2]string{
		{"1.0", "1"}, {"1e2", "100"}, {"-0", "0"}, {"9007199254740993", "9007199254740992"}, {`"\ud800"`, `"\udbff"`},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`["a,b"]`, `["a","b"]`}, {`"\u0041"`, `"A"`},
		{"\"\xff\"", "\"\xfe\""}, {`{"a":[{"c":0.10}]}`, `{"a":[{"c":1e-1}]}`}, {"[[1],2]", "[[1,2]]"},
		{"1e5", "1e-5"}, {`"\ud83d\ude00"`, `"😀"`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		one, ok := byValue(a)
		two, also := byValue(b)
		if !ok || !also || hugePower.MatchString(a+" "+b) { // math/big would write the zeros
			return
		}
		x, y := valueOf(t, a), valueOf(t, b)
		if same := reflect.DeepEqual(x, y); same != (one == two) {
			t.Errorf("%q and %q: one value is %t, one fingerprint is %t", a, b, same, one == two)
		}
	})
}

var hugePower = regexp.MustCompile(`[eE][+-]?[0-9]{5}`)

// valueOf reads with another reader.
func valueOf(t *testing.T, body string) any {
	d := json.NewDecoder(bytes.NewReader([]byte(body)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q has a fingerprint and is no JSON: %v", body, err)
	}
	var exact func(any) any
	exact = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			r, ok := new(big.Rat).SetString(string(v))
			if !ok {
				t.Fatalf("no number: %s", v)
			}
			return "number " + fmt.Sprint(r)
		case string:
			return "text " + v
		case []any:
			for i := range v {
				v[i] = exact(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = exact(v[name])
			}
		}
		return v
	}
	return exact(v)
}
