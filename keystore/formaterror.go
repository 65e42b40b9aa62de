package keystore

// A Reason says why a token cannot be a key.
type Reason uint8

// The reasons.
const (
	TooLong            Reason = iota + 1 // more than 256 bytes
	BadCharacter                         // a byte that no key has, such as a quote or a space
	OtherPrefix                          // not this service's
	Publishable                          // a key for browsers, such as svc_pub_…
	UnknownEnvironment                   // neither live nor test
	BadLength                            // cut off, or two pasted together
	BadChecksum                          // mistyped, cut off or edited
)

// String returns a sentence part that helps whoever sent the token and says
// nothing about its characters.
func (r Reason) String() string {
	switch r {
	case TooLong:
		return "the key is longer than any key"
	case BadCharacter:
		return "the key has a character that no key has; it may have been copied with a quote or a line break"
	case OtherPrefix:
		return "the key does not begin with the prefix of this service"
	case Publishable:
		return "the key is a publishable one; a secret key is needed"
	case UnknownEnvironment:
		return "the key is neither a live nor a test key"
	case BadLength:
		return "the key has the wrong length; it may have been cut off"
	case BadChecksum:
		return "the key is mistyped or has been altered"
	}
	return "the key is malformed"
}

// A FormatError is the error of [Format.Parse]. It holds no part of the token,
// so it can be logged and shown. The errors that Parse returns are shared and
// must not be written to.
type FormatError struct {
	Reason Reason
}

func (e *FormatError) Error() string { return "keystore: " + e.Reason.String() }

// formatErrors has one error a reason, so that a flood of bad tokens costs no
// memory.
var formatErrors = [...]FormatError{
	{}, {TooLong}, {BadCharacter}, {OtherPrefix}, {Publishable}, {UnknownEnvironment}, {BadLength}, {BadChecksum},
}

func refusedAs(r Reason) error { return &formatErrors[r] }
