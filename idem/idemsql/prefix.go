package idemsql

import (
	"fmt"
	"strings"
)

// This file is the same in packages keysql and idemsql. A test of idemsql
// compares the two.

// defaultPrefix is what all names begin with that stand in the statements and
// in the directory schema.
const defaultPrefix = "sallyport_"

// longestPrefix leaves room for what follows in the longest name. Postgres cuts
// a name after 63 bytes without a word, so that two would become one.
const longestPrefix = 40

// checkPrefix panics, in the name of a package, when a prefix cannot stand in a
// name without quotes.
func checkPrefix(packageName, prefix string) {
	valid := len(prefix) <= longestPrefix
	for i, c := range []byte(prefix) {
		valid = valid && (c == '_' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9')
	}
	if !valid {
		panic(fmt.Sprintf("%s: Options.Prefix %q is not at most %d of the characters a-z, 0-9 and _, "+
			"or begins with a digit", packageName, prefix, longestPrefix))
	}
}

// withPrefix returns the dialect with other names in its statements and in its
// schema.
func (d dialect) withPrefix(prefix string) dialect {
	if prefix == defaultPrefix {
		return d
	}
	rename := strings.NewReplacer(defaultPrefix, prefix).Replace
	convert := d.sql
	d.sql = func(query string, args []any) (string, []any) { return convert(rename(query), args) }
	steps := d.steps
	d.steps = make([]string, len(steps))
	for i, step := range steps {
		d.steps[i] = rename(step)
	}
	return d
}
