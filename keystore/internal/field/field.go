// Package field has the forms in which the fields of a key are stored and
// compared, for package keystore, which reads keys, and package issuing, which
// writes them.
package field

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const maxText = 255 // bytes of an identifier that somebody else chose

// Text returns what is wrong with an identifier that somebody else chose, as a
// sentence, or "".
func Text(title, text string) string {
	switch {
	case len(text) > maxText:
		return fmt.Sprintf("The %s is longer than %d bytes.", title, maxText)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return "The " + title + " is not valid UTF-8 text." // Postgres stores neither
	}
	return ""
}

const maxMarks = 4 // combining ones in a row; more cover the lines around them

// Name returns what keeps a name from being read, as a sentence, or "". One that
// is empty is not looked at.
func Name(title, name string) string {
	marks, seen := 0, name == ""
	for _, r := range name {
		switch {
		case unicode.IsMark(r):
			marks++
		case !unicode.Is(unicode.Cf, r): // which a mark can follow unseen
			marks = 0
		}
		if marks > maxMarks {
			return fmt.Sprintf("The %s has more than %d combining marks in a row.", title, maxMarks)
		}
		blank := r == '\u2800' || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) // such as a filler
		seen = seen || unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !blank
	}
	if !seen {
		return "The " + title + " has no character that can be seen."
	}
	return ""
}

// Organization returns what is wrong with the id of an organization, as a
// sentence, or "".
func Organization(id string) string {
	if id == "" {
		return "The organization is missing."
	}
	return Text("organization", id)
}

// Attributes returns a copy of those that have a value, or nil.
func Attributes(attributes map[string]string) map[string]string {
	kept := maps.Clone(attributes)
	maps.DeleteFunc(kept, func(_, value string) bool { return value == "" })
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// Network returns n without host bits and, when all of it is IPv4 mapped into
// IPv6, as the IPv4 network. What is no network is the zero Prefix, which
// contains nothing.
func Network(n netip.Prefix) netip.Prefix {
	if n.Addr().Is4In6() {
		n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
	}
	return n.Masked()
}

// Networks returns each network once, as [Network] does, or nil.
func Networks(networks []netip.Prefix) (canonical []netip.Prefix) {
	for _, n := range networks {
		if n = Network(n); !slices.Contains(canonical, n) {
			canonical = append(canonical, n)
		}
	}
	return canonical
}

// Time returns t as every store can keep it.
func Time(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Now returns the wall clock's time as every store can keep it.
func Now() time.Time { return Time(time.Now()) }
