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

// ByValue returns the fingerprint of a content whose body is JSON. All bytes of
// the same value have it, whatever the parameters of the Content-Type, and no
// other content: numbers are the same if they are so mathematically, of
// whatever size, and members in any order. It returns false for a body that
// readers may take for different values: one that is not JSON, that has a
// member twice, in whatever letter case, or an escape that is not Unicode, or
// that is too deep.
func (c Content) ByValue() ([32]byte, bool) {
	mediaType, _, _ := strings.Cut(strings.ToLower(c.ContentType), ";")
	c.ContentType = strings.TrimSpace(mediaType)
	if c.ContentType != "application/json" && !strings.HasSuffix(c.ContentType, "+json") ||
		!utf8.Valid(c.Body) || !json.Valid(c.Body) {
		return [32]byte{}, false
	}
	value, _, ok := appendValue(nil, c.Body, maxDepth)
	if !ok {
		return [32]byte{}, false
	}
	sum := sha256.Sum256(value)
	return sha256.Sum256(append(c.appendHead(nil, bodyByValue), sum[:]...)), true
}

// appendValue appends the value that the valid JSON s begins with, in a form
// that belongs to it alone, and returns what follows it.
func appendValue(b, s []byte, depth int) (_, rest []byte, ok bool) {
	s = space(s)
	switch s[0] {
	case '[':
		b, s = append(b, '['), space(s[1:])
		for ok = depth > 0; ok && s[0] != ']'; s = separator(s) {
			if b, s, ok = appendValue(b, s, depth-1); !ok {
				return b, nil, false
			}
		}
		return append(b, ']'), s[1:], ok
	case '{':
		return appendObject(b, space(s[1:]), depth)
	case '"':
		text, s, ok := text(s)
		return appendPart(append(b, '"'), text), s, ok
	}
	n := bytes.IndexAny(s, " \t\r\n,]}")
	if n < 0 {
		n = len(s)
	}
	if s[0] >= 'a' { // true, false or null
		return append(b, s[0]), s[n:], true
	}
	b, ok = appendNumber(b, string(s[:n]))
	return b, s[n:], ok
}

// appendObject appends the object whose first member s begins with.
func appendObject(b, s []byte, depth int) (_, rest []byte, ok bool) {
	type member struct {
		name     string
		folded   string // of which encoding/json takes all for one, the last
		from, to int    // its value, in b
	}
	var members []member
	begin := len(b)
	for ok = depth > 0; ok && s[0] != '}'; s = separator(s) {
		m := member{from: len(b)}
		if m.name, s, ok = text(s); !ok {
			break
		}
		if b, s, ok = appendValue(b, space(s)[1:], depth-1); !ok {
			break
		}
		m.folded, m.to = strings.Map(fold, m.name), len(b)
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.folded, y.folded) })
	values := bytes.Clone(b[begin:]) // no more: there may be many objects
	b = append(b[:begin], '{')
	for i, m := range members {
		ok = ok && (i == 0 || m.folded != members[i-1].folded)
		b = append(appendPart(append(b, '"'), m.name), values[m.from-begin:m.to-begin]...)
	}
	if !ok {
		return b, nil, false
	}
	if len(b)-begin > 2*sha256.Size { // so that no object outside copies it again
		sum := sha256.Sum256(b[begin:])
		b = append(append(b[:begin], '#'), sum[:]...)
	}
	return append(b, '}'), s[1:], true
}

// fold returns the first of the runes that differ from r in letter case alone.
func fold(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// text returns the string that s begins with. An escape of half a surrogate
// pair stands for no text: encoding/json reads U+FFFD in its place.
func text(s []byte) (_ string, rest []byte, ok bool) {
	end := 1
	for ; s[end] != '"'; end++ {
		if s[end] == '\\' {
			end++
		}
	}
	quoted, rest := s[:end+1], s[end+1:]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:end]), rest, true
	}
	var unescaped string
	err := json.Unmarshal(quoted, &unescaped)
	return unescaped, rest, err == nil && !strings.ContainsRune(unescaped, utf8.RuneError)
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

// separator returns s without the comma that it may begin with.
func separator(s []byte) []byte { return space(bytes.TrimPrefix(space(s), []byte(","))) }

func space(s []byte) []byte { return bytes.TrimLeft(s, " \t\r\n") }
