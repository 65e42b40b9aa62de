package keystore

import "strings"

// A TokenError is the error of [Service.Parse] for a text that cannot be a key:
// what is wrong, in a sentence for whoever sent it. It holds no part of the
// text, so it can be logged and shown.
type TokenError string

func (e TokenError) Error() string {
	text := strings.TrimSuffix(string(e), ".")
	first := text[:min(1, len(text))]
	return "keystore: " + strings.ToLower(first) + text[len(first):]
}

// Constants, so that a flood of bad tokens costs no memory.
const (
	errTooLong      TokenError = "The key is longer than any key."
	errBadCharacter TokenError = "The key has a character that no key has; " +
		"it may have been copied with a quote or a line break."
	errOtherPrefix TokenError = "The key does not begin with the prefix of this service."
	errPublishable TokenError = "This is a publishable key, which is made for browsers. " +
		"This API needs a secret key."
	errUnknownEnvironment TokenError = "The key names no environment of this service; it may be mistyped."
	errBadLength          TokenError = "The key has the wrong length; it may have been cut off."
	errIncomplete         TokenError = "The key is mistyped or was not copied whole."
	errBadChecksum        TokenError = "The key is mistyped or has been altered."
)
