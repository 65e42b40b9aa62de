package keystore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits of [Key.Attributes], so that each request can carry them and a
// cache of many keys stays small.
const (
	maxAttributes     = 16
	maxAttributeName  = 40  // bytes
	maxAttributeValue = 200 // bytes
)

// attributeProblems returns what is wrong with the attributes of a key.
func attributeProblems(attributes map[string]string) (problems []FieldError) {
	add := func(format string, args ...any) {
		problems = append(problems, FieldError{"attributes", fmt.Sprintf(format, args...)})
	}
	attributes = valued(attributes)
	if len(attributes) > maxAttributes {
		add("There are %d attributes; a key has at most %d.", len(attributes), maxAttributes)
		return problems
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
	return problems
}

func notOfAName(r rune) bool {
	return r >= utf8.RuneSelf || !isBase62(byte(r)) && !strings.ContainsRune("_-.", r)
}

// valued returns a copy of the attributes that have a value, or nil.
func valued(attributes map[string]string) map[string]string {
	kept := maps.Clone(attributes)
	maps.DeleteFunc(kept, func(_, value string) bool { return value == "" })
	if len(kept) == 0 {
		return nil
	}
	return kept
}
