package keystore

import "strings"

// A FormatError is the error of [Format.Parse] and [Format.Candidates]. It
// holds no part of the token, so it can be logged and shown. The errors that
// they return are shared and must not be written to.
type FormatError struct {
	Detail string // what is wrong, in a sentence for whoever sent the token
}

func (e *FormatError) Error() string {
	text := strings.TrimSuffix(e.Detail, ".")
	first := text[:min(1, len(text))]
	return "keystore: " + strings.ToLower(first) + text[len(first):]
}

// Made once, so that a flood of bad tokens costs no memory.
var (
	errTooLong            = &FormatError{"The key is longer than any key."}
	errBadCharacter       = &FormatError{"The key has a character that no key has; it may have been copied with a quote or a line break."}
	errOtherPrefix        = &FormatError{"The key does not begin with the prefix of this service."}
	errPublishable        = &FormatError{"This is a publishable key, which is made for browsers. This API needs a secret key."}
	errUnknownEnvironment = &FormatError{"The key is neither a live nor a test key."}
	errBadLength          = &FormatError{"The key has the wrong length; it may have been cut off."}
	errIncomplete         = &FormatError{"The key is mistyped or was not copied whole."}
	errBadChecksum        = &FormatError{"The key is mistyped or has been altered."}
)
