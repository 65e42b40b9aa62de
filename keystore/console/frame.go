package console

import (
	"fmt"
	"net/http"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

type console struct {
	issuer   *issuing.Issuer
	registry *scope.Registry
	admin    func(*http.Request) (Actor, error)
	options  Options
	look     look
	csp      string
	origins  http.CrossOriginProtection
}

// An exchange is one request with the administrator who makes it.
type exchange struct {
	*console
	w     http.ResponseWriter
	r     *http.Request
	actor Actor
	by    *issuing.Issuer   // acts as the actor
	root  string            // the console's root, relative to the request
	below map[string]int    // live children of the keys that were found, by id
	names map[string]string // of people, by id

	problems []keystore.FieldError // of the form that was sent
}

// wrong notes what is wrong with a field of the form that was sent.
func (x *exchange) wrong(field, format string, args ...any) {
	x.problems = append(x.problems, keystore.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// invalid returns what was noted as an error, or nil.
func (x *exchange) invalid() error {
	if x.problems == nil {
		return nil
	}
	return &keystore.FieldsError{Fields: x.problems}
}

// An option is one of several that a form offers, or a pair that a page shows.
type option struct{ Value, Name string }

// setHeaders sets what every answer carries, refusals and assets too.
func (c *console) setHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", c.csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if len(c.options.FrameAncestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
}
