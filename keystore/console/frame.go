package console

import (
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
