package keystore

import (
	"fmt"
	"strings"
)

// A FieldError is one thing that is wrong with what somebody asks for, such as
// a new key. Field is the name of a field or an argument in lower case, with _
// between words, such as "expires_at".
type FieldError struct {
	Field   string
	Message string // a sentence for whoever filled the field in; may quote what they wrote
}

// A FieldsError holds all that is wrong, so that a form can show it in one go.
// A field can be wrong in several ways.
type FieldsError struct {
	Fields []FieldError
}

func (e *FieldsError) Error() string {
	var b strings.Builder
	b.WriteString("keystore: fields are not valid")
	for _, p := range e.Fields {
		b.WriteString("; " + p.Field + ": " + p.Message)
	}
	return b.String()
}

// problems collects what is wrong.
type problems []FieldError

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, FieldError{field, fmt.Sprintf(format, args...)})
}
