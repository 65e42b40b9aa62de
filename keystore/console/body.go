package console

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
)

const maxBody = 64 << 10 // bytes

// readForm reads the body that a page's form sends.
func (x *exchange) readForm() error {
	if kind, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return &failure{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", title: "Not understood", detail: "Send a form, or JSON with the header Accept: application/json."}
	}
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, maxBody)
	if err := x.r.ParseForm(); err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge
		}
		return badRequest("The form could not be read.")
	}
	return nil
}

// readJSON reads the body into v. A member that v does not have is refused: a
// misspelt expires_at would make a key that never expires.
func (x *exchange) readJSON(v any) error {
	if !isJSON(x.r.Header.Get("Content-Type")) {
		return &failure{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", detail: "Send the header Content-Type: application/json."}
	}
	d := json.NewDecoder(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	return badRequest("The body is not one JSON object with the members that are documented, each of its type.")
}

// formToken returns the token that a form carries, by which a repeat is known.
// It is empty when the form has none.
func (x *exchange) formToken() string {
	if token := x.r.PostForm.Get("issue_token"); validToken(token) {
		return token
	}
	return ""
}

// idempotencyKey returns what a program sent for the same purpose.
func (x *exchange) idempotencyKey() (string, error) {
	values := x.r.Header.Values("Idempotency-Key")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || !validToken(values[0]):
		return "", &failure{status: http.StatusBadRequest, code: "idempotency_key_invalid", detail: "The Idempotency-Key is one value of 1 to 255 printable ASCII characters."}
	}
	return values[0], nil
}

func validToken(token string) bool {
	for i := range len(token) {
		if token[i] < 0x20 || token[i] > 0x7e {
			return false
		}
	}
	return token != "" && len(token) <= 255
}

func newToken() string { return rand.Text() }
