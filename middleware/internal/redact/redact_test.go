package redact_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/redact"
)

func TestSecret(t *testing.T) {
	const random = "0123456789abcDEF" // the shortest part that is searched for by itself
	const secret = "svc_live_" + random
	tests := []struct {
		name, secret, text, want string
	}{
		{"plain", secret, "a " + secret + " b " + secret, "a [secret] b [secret]"},
		{"capitals", secret, strings.ToUpper(secret), "[secret]"},
		{"without its prefix", secret, "key " + random + ".", "key [secret]."},
		{"short without its prefix", secret[:24], "key " + random[:15] + ".", "key " + random[:15] + "."},
		{"bytes", secret, fmt.Sprint([]byte(secret)), "[[secret]]"},
		{"bytes in Go's syntax", secret, fmt.Sprintf("%#v", []byte(secret)), "[]byte{[secret]}"},
		{"hex", secret, fmt.Sprintf("<%x> <%X>", secret, secret), "<[secret]> <[secret]>"},
		{"hex with spaces", secret, fmt.Sprintf("<% x>", secret), "<[secret]>"},
		{"too short to be one", "abc", "abc", "abc"},
		{"just long enough", "abcd", "xabcdx", "x[secret]x"},
		{"none", secret, "İ and nothing else", "İ and nothing else"},
	}
	for _, tt := range tests {
		if got := redact.Secret(tt.text, tt.secret); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A character of Base64 holds six bits. One that also holds bits of a
// neighbour stays.
func TestSecretInBase64(t *testing.T) {
	const secret = "svc_live_0123456789abcdef"
	for _, tt := range []struct{ before, after, want string }{
		{"", "", "[secret]g"},
		{"", "yy", "[secret]nl5"},
		{"x", "yy", "eH[secret]Z5eQ"},
		{"xx", "y", "eHh[secret]eQ"},
		{"xxx", "y", "eHh4[secret]nk"},
	} {
		text := base64.RawStdEncoding.EncodeToString([]byte(tt.before + secret + tt.after))
		if got := redact.Secret(text, secret); got != tt.want {
			t.Errorf("%q, %q: got %s of %s, want %s", tt.before, tt.after, got, text, tt.want)
		}
	}
}
