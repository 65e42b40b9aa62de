package keystore

// A Format says what a token looks like.
type Format struct {
	Prefix          string // empty: "svc"
	AcceptUnchecked bool
}

// Validate checks f.
func (f Format) Validate() error { return nil }

// Generate returns a new token.
func (f Format) Generate(e Environment) Secret { panic("not yet") }

// Parse returns the environment of a token.
func (f Format) Parse(token string) (Environment, error) { panic("not yet") }

// Pattern returns the regular expression of f's tokens, without anchors.
func (f Format) Pattern() string { panic("not yet") }

// A Reason says what is wrong with a token.
type Reason uint8

// The reasons.
const (
	TooLong Reason = iota + 1
	BadCharacter
	OtherPrefix
	Publishable
	UnknownEnvironment
	BadLength
	BadChecksum
)

// A FormatError is what [Format.Parse] returns.
type FormatError struct{ Reason Reason }

func (e *FormatError) Error() string { return "keystore: token" }
