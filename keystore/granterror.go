package keystore

import "strings"

// A FieldError is one thing that is wrong with a [Grant]. Field is the name of
// the field in lower case, with _ between words, such as "expires_at"; for an
// argument of a method it is that of the argument, such as "overlap".
type FieldError struct {
	Field   string
	Message string // a sentence for whoever filled the field in; may quote what they wrote
}

// A GrantError holds all that is wrong with a [Grant], so that a form can show
// it in one go. A field can be wrong in several ways.
type GrantError struct {
	Fields []FieldError
}

func (e *GrantError) Error() string {
	var b strings.Builder
	b.WriteString("keystore: grant is not valid")
	for _, p := range e.Fields {
		b.WriteString("; " + p.Field + ": " + p.Message)
	}
	return b.String()
}
