package keystore

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// The limits of [Key.Attributes], so that each request can carry them and a
// cache of many keys stays small.
const (
	maxAttributes     = 16
	maxAttributeName  = 40  // bytes
	maxAttributeValue = 200 // bytes
)

func (p *problems) addAttributes(attributes map[string]string) {
	add := func(format string, args ...any) { p.add("attributes", format, args...) }
	attributes = field.Attributes(attributes)
	if len(attributes) > maxAttributes {
		add("There are %d attributes; a key has at most %d.", len(attributes), maxAttributes)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[name]
		switch {
		case name == "":
			add("An attribute has no name.")
		case len(name) > maxAttributeName:
			add("The attribute name %.40q is longer than %d bytes.", name, maxAttributeName)
		case strings.ContainsFunc(name, notOfAName):
			add("The attribute name %q has other characters than letters, digits, _, - and full stops.", name)
		case len(value) > maxAttributeValue:
			add("The value of the attribute %q is longer than %d bytes.", name, maxAttributeValue)
		case !utf8.ValidString(value):
			add("The value of the attribute %q is not valid UTF-8 text.", name)
		case strings.ContainsFunc(value, controls):
			add("The value of the attribute %q has a control character, such as a line break.", name)
		}
	}
}

func notOfAName(r rune) bool {
	return r >= utf8.RuneSelf || !isBase62(byte(r)) && !strings.ContainsRune("_-.", r)
}

// controls reports whether a character ends a line or turns the text around it.
func controls(r rune) bool {
	const embeddings, isolates = "\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069"
	return unicode.IsControl(r) || strings.ContainsRune("\u2028\u2029"+embeddings+isolates, r)
}
