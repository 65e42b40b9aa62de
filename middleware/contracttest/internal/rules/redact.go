package rules

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// gram is the length of a part of a key that is taken for the key.
const gram = 8

// A redactor takes keys out of texts. It knows a key by any eight characters
// of its random part in a row, in any letter case, plain or in base64, so that
// altered and shortened keys go too.
type redactor struct {
	names map[string]string // key → what stands for it
	keys  []string          // the longest first
	lower []string          // the keys in small letters
	parts map[string]bool   // what is hidden: lower case, gram bytes each
	tails map[string]bool   // parts behind the last underscore, which holds looks for
}

func newRedactor(keys map[string]string) *redactor {
	r := &redactor{names: make(map[string]string), parts: make(map[string]bool), tails: make(map[string]bool)}
	for name, key := range keys {
		if key == "" {
			continue
		}
		r.names[key] = "$" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		r.keys, r.lower = append(r.keys, key), append(r.lower, strings.ToLower(key))
		learn(r.parts, hiddenPart(key))
		learn(r.tails, secretPart(key))
		for shift := range 3 {
			encoded := base64.RawStdEncoding.EncodeToString([]byte("xxx"[:shift] + key))
			// The first and last characters depend on what stands around.
			encoded = encoded[min(4+gram, len(encoded)-2) : len(encoded)-2]
			learn(r.parts, encoded)
			learn(r.tails, encoded)
		}
	}
	slices.SortFunc(r.keys, func(a, b string) int { return len(b) - len(a) })
	return r
}

func learn(parts map[string]bool, text string) {
	text = strings.ToLower(text)
	for i := 0; i+gram <= len(text); i++ {
		parts[text[i:i+gram]] = true
	}
}

// text returns s without the keys.
func (r *redactor) text(s string) string {
	for _, key := range r.keys {
		s = strings.ReplaceAll(s, key, r.names[key])
	}
	lower := strings.ToLower(s)
	if len(lower) != len(s) { // a letter whose cases differ in length
		s = lower
	}
	var b strings.Builder
	hidden := 0 // bytes before it are hidden
	for i := range len(s) {
		if i+gram <= len(s) && r.parts[lower[i:i+gram]] {
			if hidden <= i {
				b.WriteString("[part of a key]")
			}
			hidden = i + gram
		}
		if i >= hidden {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// holds reports whether s holds most of a key: a run of its random part that
// is too long to be chance.
func (r *redactor) holds(s string) bool {
	lower := strings.ToLower(s)
	part := func(i int) bool { return i >= 0 && i+gram <= len(lower) && r.tails[lower[i:i+gram]] }
	// A run of two grams holds a whole one that begins at a multiple of its
	// length.
	for i := 0; i+gram <= len(lower); i += gram {
		if !part(i) {
			continue
		}
		run := 1
		for j := i - 1; part(j); j-- {
			run++
		}
		for j := i + 1; part(j); j++ {
			run++
		}
		if run > gram {
			return true
		}
	}
	return r.whole(s)
}

// whole reports whether s holds a key, in any letter case.
func (r *redactor) whole(s string) bool {
	s = strings.ToLower(s)
	return slices.ContainsFunc(r.lower, func(key string) bool { return strings.Contains(s, key) })
}

// prefixes are the words in front of the random part: those of the contract,
// or any words in small letters.
var prefixes = regexp.MustCompile(`^(?:[^_]+_(?:live|test)_|(?:[a-z]{1,12}_)+)`)

// hiddenPart returns what follows the prefix of a key. A random part may have
// underscores in it, as base64url has.
func hiddenPart(key string) string {
	if random := key[len(prefixes.FindString(key)):]; len(random) >= gram {
		return random
	}
	return key
}

// secretPart returns what follows the last underscore of a key. What stands
// before it may be the id of the key, which responses may name.
func secretPart(key string) string {
	if cut := strings.LastIndexByte(key, '_'); cut >= 0 && len(key)-cut > gram {
		return key[cut+1:]
	}
	return key
}
