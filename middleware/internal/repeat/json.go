package repeat

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may stand in each other.
const maxDepth = 100

// maxValue is the largest body that has a value, in bytes.
const maxValue = 64 << 10

// valueMark begins each fingerprint by value, and one in 2³² others.
var valueMark = [4]byte{'J', 'S', 'O', 'N'}

// IsByValue reports whether a fingerprint may be one of [Content.ByValue].
func IsByValue(f [32]byte) bool { return [4]byte(f[:4]) == valueMark }

// ValueRoom returns how many bytes of memory [Content.ByValue] takes at most,
// or 0 where the size or the type of the body says that it has no value.
func (c *Content) ValueRoom() int {
	mediaType := c.mediaType()
	if mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json") || len(c.Body) > maxValue {
		return 0
	}
	return 20 * len(c.Body)
}

func (c *Content) mediaType() string {
	mediaType, _, _ := strings.Cut(strings.ToLower(c.ContentType), ";")
	return strings.TrimSpace(mediaType)
}

// ByValue returns the fingerprint of a content whose body is JSON. All bytes of
// the same value have it, whatever the parameters of the Content-Type, and no
// other content. Numbers are the same if they are so mathematically, and members
// in any order. A body that readers may take for different values has none: one
// that is not JSON, that has a member twice, in whatever letter case, or an escape
// that is not Unicode; nor has one that is too large or too deep.
func (c Content) ByValue() (f [32]byte, ok bool) {
	var compact bytes.Buffer
	if c.ValueRoom() == 0 || !utf8.Valid(c.Body) || json.Compact(&compact, c.Body) != nil {
		return f, false
	}
	s := compact.String()
	most := min(strings.Count(s, ":"), len(s)/len(`"":1,`))
	v := value{form: make([]byte, 0, 2*len(s)), members: make([]member, 0, most)}
	if _, ok = v.append(s, maxDepth); !ok {
		return f, false
	}
	c.ContentType = c.mediaType()
	sum := sha256.Sum256(v.form)
	f = sha256.Sum256(append(c.appendHead(nil, bodyByValue), sum[:]...))
	copy(f[:], valueMark[:])
	return f, true
}

// A value is a JSON value in a form that belongs to it alone.
type value struct {
	form    []byte
	members []member // of the objects that have not ended
	object  []byte   // one that has ended, before its members are sorted
}

// A member of an object is where it stands there.
type member struct {
	folded     string // its name, of which encoding/json takes all for one, the last
	begin, end int32
}

// append appends the value that the compact JSON s begins with, and returns
// what follows it.
func (v *value) append(s string, depth int) (rest string, ok bool) {
	switch s[0] {
	case '[':
		v.form, s = append(v.form, '['), s[1:]
		for ok = depth > 0; ok && s[0] != ']'; s = strings.TrimPrefix(s, ",") {
			if s, ok = v.append(s, depth-1); !ok {
				return "", false
			}
		}
		v.form = append(v.form, ']')
		return s[1:], ok
	case '{':
		return v.appendObject(s[1:], depth)
	case '"':
		_, s, ok = v.appendText(s)
		return s, ok
	}
	n := strings.IndexAny(s, ",]}")
	if n < 0 {
		n = len(s)
	}
	if s[0] >= 'a' { // true, false or null
		v.form = append(v.form, s[0])
		return s[n:], true
	}
	v.form, ok = appendNumber(v.form, s[:n])
	return s[n:], ok
}

// appendObject appends the object whose first member s begins with.
func (v *value) appendObject(s string, depth int) (rest string, ok bool) {
	begin, outside := len(v.form), len(v.members)
	for ok = depth > 0; ok && s[0] != '}'; s = strings.TrimPrefix(s, ",") {
		m := member{begin: int32(len(v.form) - begin)}
		if m.folded, s, ok = v.appendText(s); !ok {
			return "", false
		}
		if s, ok = v.append(s[1:], depth-1); !ok {
			return "", false
		}
		m.folded, m.end = strings.Map(fold, m.folded), int32(len(v.form)-begin)
		v.members = append(v.members, m)
	}
	members := v.members[outside:]
	slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.folded, y.folded) })
	for i, m := range members {
		ok = ok && (i == 0 || m.folded != members[i-1].folded)
	}
	if !ok {
		return "", false
	}
	v.object = append(v.object[:0], v.form[begin:]...)
	v.form = append(v.form[:begin], '{')
	// Not by folded, which changes with the Unicode of a Go version: processes
	// of two share the records.
	bytesOf := func(m member) []byte { return v.object[m.begin:m.end] }
	slices.SortFunc(members, func(x, y member) int { return bytes.Compare(bytesOf(x), bytesOf(y)) })
	for _, m := range members {
		v.form = append(v.form, bytesOf(m)...)
	}
	v.members = v.members[:outside]
	if len(v.form)-begin > 2*sha256.Size { // so that no object outside copies it again
		sum := sha256.Sum256(v.form[begin:])
		v.form = append(append(v.form[:begin], '#'), sum[:]...)
	}
	v.form = append(v.form, '}')
	return s[1:], true
}

// fold returns the same rune for all that differ in letter case alone, and for
// the dotless i and the I with a dot that of i. Names in lower case are themselves.
func fold(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

// slashes takes away the one escape that Go does not know.
var slashes = strings.NewReplacer(`\\`, `\\`, `\/`, `/`)

// appendText appends the string that s begins with, and returns it. An escape
// of half a surrogate pair stands for no text: encoding/json reads U+FFFD in
// its place.
func (v *value) appendText(s string) (text, rest string, ok bool) {
	end := 1
	for ; s[end] != '"'; end++ {
		if s[end] == '\\' {
			end++
		}
	}
	quoted, rest := s[:end+1], s[end+1:]
	text, err := strconv.Unquote(quoted)
	if err != nil {
		text, err = strconv.Unquote(slashes.Replace(quoted))
	}
	if err != nil { // a surrogate
		var unquoted string
		err = json.Unmarshal([]byte(quoted), &unquoted)
		text = unquoted
	}
	v.form = appendPart(append(v.form, '"'), text)
	return text, rest, err == nil && (text == quoted[1:end] || !strings.ContainsRune(text, utf8.RuneError))
}

// appendNumber appends a number as its digits without zeros at either end and
// the power of ten behind them. It does not write the zeros of 1e999 out.
func appendNumber(b []byte, number string) (_ []byte, ok bool) {
	mantissa, power, _ := strings.Cut(strings.ToLower(number), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(b, '0'), true // -0 too
	}
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || len(power) > 10 {
			return b, false
		}
	}
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant) - len(fraction)
	if negative {
		b = append(b, '-')
	}
	b = append(append(b, significant...), 'e')
	return append(strconv.AppendInt(b, int64(exponent), 10), ';'), true
}
