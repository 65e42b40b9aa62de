package keystore

import (
	"fmt"
	"io"
)

// redacted is what every way of printing a Secret yields.
const redacted = "[secret]"

// A Secret is the text of a token when it is issued, the one moment it is known.
// Printing, logging and marshalling it yield "[secret]", also as an unexported
// field of something else; only [Secret.Reveal] returns the text. The zero Secret
// holds none. Two Secrets are equal under == when one is a copy of the other.
type Secret struct {
	// Of an unexported field fmt and slog call no method: they would print a
	// string, and print the address of a pointer.
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
