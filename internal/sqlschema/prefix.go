package sqlschema

import (
	"fmt"
	"strings"
)

// DefaultPrefix is what all names begin with that stand in the statements and
// in the directory schema.
const DefaultPrefix = "sallyport_"

// longestPrefix leaves room for what follows in the longest name. Postgres cuts
// a name after 63 bytes without a word, so that two would become one.
const longestPrefix = 40

// CheckPrefix panics, in the name of a package, when a prefix cannot stand in a
// name without quotes.
func CheckPrefix(packageName, prefix string) {
	valid := len(prefix) <= longestPrefix
	for i, c := range []byte(prefix) {
		valid = valid && (c == '_' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9')
	}
	if !valid {
		panic(fmt.Sprintf("%s: Options.Prefix %q is not at most %d of the characters a-z, 0-9 and _, "+
			"or begins with a digit", packageName, prefix, longestPrefix))
	}
}

// Form makes the database's form of a statement.
type Form func(query string, args []any) (string, []any)

// WithPrefix returns the form and the steps with other names in them.
func WithPrefix(prefix string, form Form, steps []string) (Form, []string) {
	if prefix == DefaultPrefix {
		return form, steps
	}
	rename := strings.NewReplacer(DefaultPrefix, prefix).Replace
	renamed := make([]string, len(steps))
	for i, step := range steps {
		renamed[i] = rename(step)
	}
	return func(query string, args []any) (string, []any) { return form(rename(query), args) }, renamed
}
