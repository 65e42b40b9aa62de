package keystore

import (
	"fmt"
	"io"
)

// redacted is what every way of printing a Secret yields.
const redacted = "[secret]"

// A Secret is the text of a token at the one moment it is known: when it is
// issued. Printing it, logging it and marshalling it yield "[secret]", also
// when it is an unexported field of something else; only [Secret.Reveal]
// returns the text. The zero Secret holds none.
//
// Two Secrets are equal under == when one is a copy of the other.
type Secret struct {
	// fmt and slog reach unexported fields by reflection and call no method on
	// them. They print a string they find there, and of a pointer its address.
	text *string
}

func newSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text, which is empty for the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format implements [fmt.Formatter]: every verb prints "[secret]".
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler], and with it JSON, XML and
// the handlers of log/slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
