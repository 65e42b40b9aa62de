package keystore

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// The limits of a key, so that each request can carry its attributes and compare
// its address with all networks, and a cache of many keys stays small.
const (
	maxName           = 100 // characters
	maxAttributes     = 16
	maxAttributeName  = 40  // bytes
	maxAttributeValue = 200 // bytes
	maxNetworks       = 20
)

// Validate returns a [*FieldsError] with all that keeps k from being issued, or
// nil:
//
//   - Organization is required. It and IssueToken have at most 255 bytes.
//   - Name has at most 100 characters, without controls, line ends and changes
//     of direction. If there are any, one can be seen, and at most 4 combining
//     marks follow each other.
//   - Environment is required, and r knows each of Scopes; nil means
//     [scope.Default].
//   - Attributes are at most 16, with names of 1 to 40 bytes of [0-9A-Za-z_.-]
//     and values of at most 200 bytes. One with an empty value does not count.
//   - Networks are at most 20.
//   - ExpiresAt is zero, or lies ahead and before the year 10000.
//
// It does not look at other fields. A key that a store has can be outside these
// limits, and is used nevertheless.
func (k *Key) Validate(r *scope.Registry) error {
	if p := k.problems(cmp.Or(r, scope.Default())); p != nil {
		return &FieldsError{p}
	}
	return nil
}

func (k *Key) problems(r *scope.Registry) (p problems) {
	for _, text := range []FieldError{
		{"organization", field.Organization(k.Organization)},
		{"issue_token", field.Text("issue token", k.IssueToken)},
		{"name", nameProblem(k.Name)},
	} {
		if text.Message != "" {
			p = append(p, text)
		}
	}
	if !k.Environment.Known() {
		p.add("environment", "The environment must be %q or %q.", Production, Sandbox)
	}
	_, unknown := r.Parse(k.Scopes)
	for _, n := range unknown {
		if meant, ok := r.Suggest(n); ok {
			p.add("scopes", "There is no scope %.64q; did you mean %q?", n, meant)
		} else {
			p.add("scopes", "There is no scope %.64q.", n)
		}
	}
	p.addAttributes(k.Attributes)
	p.addNetworks(k.Networks)
	if !k.ExpiresAt.IsZero() && !field.Time(k.ExpiresAt).After(field.Now()) {
		p.add("expires_at", "The expiry must lie in the future.")
	}
	if k.ExpiresAt.UTC().Year() > 9999 { // JSON cannot write it
		p.add("expires_at", "The expiry must lie before the year 10000.")
	}
	return p
}

func nameProblem(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "The name is not valid UTF-8 text."
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Sprintf("The name is longer than %d characters.", maxName)
	case strings.ContainsFunc(name, controls):
		return "The name has a control character, such as a line break."
	}
	return field.Name("name", name)
}

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

func (p *problems) addNetworks(networks []netip.Prefix) {
	if len(networks) > maxNetworks {
		p.add("networks", "There are %d networks; a key has at most %d.", len(networks), maxNetworks)
		return
	}
	for _, n := range networks {
		if !field.Network(n).IsValid() {
			p.add("networks", "%q is no network, such as 192.0.2.0/24 or 2001:db8::/32.", n)
		}
	}
}
