// Package redact removes secrets from texts.
package redact

import (
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

	parts map[string]bool // every piece that must not appear; false if it is only a public prefix
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
	if strings.EqualFold(scheme, "Basic") {
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			_, password, _ := strings.Cut(string(b), ":")
			s.Add(password)
		}
	}
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		s.Add(strings.TrimRight(strings.TrimSpace(rest), "=")) // without the padding of Base64
		return
	case strings.EqualFold(scheme, "Basic"):
		value = rest
	}
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,", r) }) {
		name, after, _ := strings.Cut(part, "=")
		if after = strings.Trim(after, `="`); after == "" {
			s.Add(part) // what follows is the padding of Base64
			continue
		}
		s.add(part, len(name)+1+publicPrefix(after))
		if len(after) < run {
			s.Add(after)
		}
	}
}

// Add adds a secret. Its public prefix alone, such as svc_live_, is none.
func (s *Secrets) Add(secret string) { s.add(secret, publicPrefix(secret)) }

var words = regexp.MustCompile(`^([a-z]+_){1,3}`)

// publicPrefix returns how much of a secret is words that end with "_", before
// at least 16 other characters.
func publicPrefix(secret string) int {
	return len(words.FindString(secret[:max(min(len(secret)-16, 24), 0)]))
}

func (s *Secrets) add(secret string, public int) {
	n := len(secret)
	if n < shortest {
		return
	}
	if s.parts == nil {
		s.parts = make(map[string]bool, n)
	}
	s.addParts(secret, min(n, run), public)
	// What encoding/json makes of bytes. The Base64 of a longer text depends on how
	// many stand before the secret. Characters that also hold bits of the neighbours
	// are left out: of 8 bytes there are 10 at least.
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		if first, end := (before*8+5)/6, (before+n)*8/6; n >= run {
			s.addParts(text[first:end], run, (before+public)*8/6-first)
		}
	}
}

// addParts adds what n characters in a row look like.
func (s *Secrets) addParts(text string, n, public int) {
	text = lowerASCII(text)
	for end := n; end <= len(text); end++ {
		part := text[end-n : end]
		s.parts[part] = s.parts[part] || end > public
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
	if len(s.parts) > 0 {
		text = numbers.ReplaceAllLiteralString(s.replace(text), mark)
	}
	if s.Shapes != nil && s.Shapes.MatchString(text) { // which does not allocate
		text = s.Shapes.ReplaceAllLiteralString(text, mark)
	}
	return text + rest
}

func (s *Secrets) replace(text string) string {
	lower := lowerASCII(text)
	secret := make([]bool, len(text)) // which bytes are part of one
	hide := func(from, to int) {
		for i := from; i < to; i++ {
			secret[i] = true
		}
	}
	var public [][2]int
	for from := range len(lower) { // bytes: a secret may begin within a rune
		for to := from + shortest; to <= min(from+run, len(lower)); to++ {
			if whole, found := s.parts[lower[from:to]]; whole {
				hide(from, to)
			} else if found {
				public = append(public, [2]int{from, to})
			}
		}
	}
	// A public prefix goes with what follows it. It may be longer than a part.
	for _, p := range slices.Backward(public) {
		if secret[p[1]-1] {
			hide(p[0], p[1])
		}
	}
	var b strings.Builder
	for i := range len(text) {
		if !secret[i] {
			b.WriteByte(text[i])
		} else if i == 0 || !secret[i-1] {
			b.WriteString(mark)
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
