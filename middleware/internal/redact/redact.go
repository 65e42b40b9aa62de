// Package redact removes secrets from texts.
package redact

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The work is bounded, whatever a client sends. A text longer than MaxText is
// cut. If the secrets are more than MaxSecrets, LeftOut replaces the text.
const (
	MaxText    = 8 << 10
	MaxSecrets = 8 << 10 // bytes; a header counts as 8 more
	LeftOut    = "[left out: the request has more than 8 KiB of credentials]"
)

const (
	run      = 8 // characters in a row that a text must not hold
	shortest = 4 // of a secret: without shorter ones the log would be unreadable
	mark     = "[secret]"
)

// Secrets are what must not be in a text: eight characters of one in a row, or
// the whole of a shorter one. The zero value is ready to use.
type Secrets struct {
	// Shapes, when set, matches further secrets. One that is cut off at the end
	// of a text must match too.
	Shapes *regexp.Regexp

	parts map[string]bool // every piece that must not appear
	spent int
	added []string // headers
}

// Spend takes n bytes of MaxSecrets, and reports whether there were as many.
func (s *Secrets) Spend(n int) bool {
	s.spent += n
	return s.spent <= MaxSecrets
}

// AddHeaders adds what the values of headers carry as secrets: tokens, the
// values of cookies, the password of Basic.
func (s *Secrets) AddHeaders(values ...string) {
	for _, value := range values {
		if !s.Spend(8) {
			return // also for a value that comes again, which is searched for
		}
		if !slices.Contains(s.added, value) && s.Spend(len(value)) {
			s.added = append(s.added, value)
			s.addHeader(value)
		}
	}
}

func (s *Secrets) addHeader(value string) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(value), " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		s.Add(strings.TrimSpace(rest))
		return
	case strings.EqualFold(scheme, "Basic"):
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			_, password, _ := strings.Cut(string(b), ":")
			s.Add(password)
		}
		value = rest
	}
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,", r) }) {
		_, after, _ := strings.Cut(part, "=")
		s.Add(cmp.Or(strings.Trim(after, `="`), part)) // nothing but the padding of Base64 may follow
	}
}

// Add adds a secret.
func (s *Secrets) Add(secret string) {
	n := len(secret)
	if n < shortest {
		return
	}
	if s.parts == nil {
		s.parts = make(map[string]bool, n)
	}
	s.addParts(secret, min(n, run))
	// What encoding/json makes of bytes. The Base64 of a longer text depends on how
	// many stand before the secret. Characters that also hold bits of the neighbours
	// are left out: of 8 bytes there are 10 at least.
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		if n >= run {
			s.addParts(text[(before*8+5)/6:(before+n)*8/6], run)
		}
	}
}

// addParts adds what n characters in a row look like.
func (s *Secrets) addParts(text string, n int) {
	text = lowerASCII(text)
	for end := n; end <= len(text); end++ {
		s.parts[text[end-n:end]] = true
	}
}

// numbers is what fmt makes of bytes, and encoding/json of an array: a secret may
// be among them. A panic with bytes looks so.
var numbers = regexp.MustCompile(`\d{1,3}(?:(?: |, ?)\d{1,3}){7,}`)

// Redact returns a text without the secrets, in any letter case and in Base64, and
// without eight numbers in a row, which may be bytes of one.
func (s *Secrets) Redact(text string) string {
	if s.spent > MaxSecrets {
		return LeftOut
	}
	rest := ""
	if len(text) > MaxText {
		text, rest = text[:MaxText], " [and "+strconv.Itoa(len(text)-MaxText)+" bytes]"
	}
	// First: without its beginning, which may be a secret too, a key has no shape.
	if s.Shapes != nil && s.Shapes.MatchString(text) { // which does not allocate
		text = s.Shapes.ReplaceAllLiteralString(text, mark)
	}
	if len(s.parts) > 0 {
		text = numbers.ReplaceAllLiteralString(s.replace(text), mark)
	}
	return text + rest
}

func (s *Secrets) replace(text string) string {
	lower, end := lowerASCII(text), 0 // of the last secret so far
	var b strings.Builder
	for i := range len(text) { // bytes: a secret may begin within a rune
		for n := shortest; n <= min(run, len(text)-i); n++ {
			if !s.parts[lower[i:i+n]] {
				continue
			}
			if end == 0 || end < i {
				b.WriteString(mark)
			}
			end = max(end, i+n)
		}
		if i >= end {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// lowerASCII keeps the length of s, as strings.ToLower does not.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
