package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"reflect"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Options configure an [API] or a [Guard]. The zero value authenticates and
// checks scopes, without rate limits and idempotency.
type Options struct {
	// Base is the path under which every route of an API lies; "" means
	// "/api/v1". A Guard has no routes, and refuses it.
	Base string

	// Service says which scopes there are and what the keys look like. Zero:
	// that of the keystore.Cached or the KeyAuthenticator, if there is one, or
	// the contract's. Without a Cached, give it the Service of the
	// keystore.Issuer.
	Service keystore.Service

	// RequestID names the header of the request id.
	RequestID RequestIDOptions
	Keys      KeyOptions

	// Authenticator, when set, finds the caller in place of API keys. The key
	// store given to New or NewAPI must then be nil. For API keys beside other
	// credentials, give FirstOf a KeyAuthenticator.
	Authenticator Authenticator

	// Preflight, when set, answers CORS preflight requests (OPTIONS with Origin
	// and Access-Control-Request-Method), which carry no credentials, in place
	// of a 401.
	Preflight http.Handler

	// Failures, when set, is how many requests with refused credentials one
	// client address may send. See [Guard.Authenticate].
	Failures ratelimit.Limit

	// ClientIP finds the client's address, for Failures and RateLimit.Client.
	ClientIP ClientIP

	RateLimit   RateLimitOptions
	Idempotency IdempotencyOptions

	// Hooks may be nil. A Guard without Hooks uses those of the stage outside
	// it.
	Hooks *Hooks
}

// Validate returns all mistakes in the options, joined by [errors.Join], or
// nil. New and NewAPI panic with the same error. A program that reads its
// options from a configuration calls Validate first.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	add := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("middleware: Options.%s: %w", field, err))
		}
	}
	if !strings.HasPrefix(o.Base, "/") || strings.ContainsAny(o.Base, "{} ") {
		add("Base", fmt.Errorf("%q is not a path; write it as \"/api/v1\"", o.Base))
	}
	_, err := o.Service.Resolve(nil)
	add("Service", err)
	add("RequestID.Header", validHeader(o.RequestID.Header))
	add("Keys", o.Keys.validate())
	if o.Failures != (ratelimit.Limit{}) {
		add("Failures", (&ratelimit.Policy{Name: "failures", Limit: o.Failures}).Validate())
		if o.Authenticator != nil {
			add("Failures", errors.New("it applies to API keys only; give it to KeyAuthenticator"))
		}
	}
	if k := o.Keys; o.Authenticator != nil &&
		(k.Environment != "" || k.Header != "" || k.RejectBrowsers || k.LastUsed != nil) {
		add("Keys", errors.New(
			"Environment, Header, RejectBrowsers and LastUsed apply to API keys only; give them to KeyAuthenticator"))
	}
	if o.Authenticator != nil && absent(o.Authenticator) {
		add("Authenticator", fmt.Errorf("it is a nil %T", o.Authenticator))
	}
	if o.Keys.Header == o.RequestID.Header {
		add("Keys", fmt.Errorf("the header %s is that of the request id", o.Keys.Header))
	}
	for _, keys := range keyAuthenticators(o.Authenticator) {
		if keys.Header == o.RequestID.Header {
			add("Authenticator", fmt.Errorf("the header %s of a KeyAuthenticator is that of the request id", keys.Header))
		}
		if !slices.Equal(keys.clientIP.trusted, o.ClientIP.trusted) {
			// The networks of keys would be compared with the address of a
			// proxy.
			add("ClientIP", errors.New("a KeyAuthenticator was made with another one; give both the same"))
		}
	}
	if o.Preflight != nil && absent(o.Preflight) {
		add("Preflight", fmt.Errorf("it is a nil %T", o.Preflight))
	}
	add("RateLimit", o.RateLimit.validate())
	add("Idempotency", o.Idempotency.validate())
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	o.Base = cmp.Or(o.Base, "/api/v1")
	o.RequestID.Header = textproto.CanonicalMIMEHeaderKey(cmp.Or(o.RequestID.Header, DefaultRequestIDHeader))
	o.Keys.Header = textproto.CanonicalMIMEHeaderKey(o.Keys.Header)
	o.Keys.Realm = cmp.Or(o.Keys.Realm, "api")
	o.Idempotency = o.Idempotency.withDefaults()
	return o
}

// resolveService makes o.Service that of the key store or of the key
// authenticators, unless it is given. These may differ in the shape of their
// keys, not in the scopes.
func (o *Options) resolveService(keys keystore.Store) (err error) {
	joined := keyAuthenticators(o.Authenticator)
	if len(joined) > 0 && reflect.ValueOf(o.Service).IsZero() {
		o.Service = joined[0].service
	}
	if o.Service, err = o.Service.Resolve(keys); err != nil {
		return err
	}
	for _, a := range joined {
		if a.service.Scopes != o.Service.Scopes {
			return fmt.Errorf("it has the scopes %v; a KeyAuthenticator has the scopes %v; give both the same Service",
				o.Service.Scopes, a.service.Scopes)
		}
	}
	return nil
}

// KeyAuthenticator returns the authenticator of API keys, to be joined with
// others by [FirstOf]. Alone, a Guard makes it from its key store. Of the
// options it uses Service, Keys, Failures and ClientIP; the Guard needs the
// same ClientIP. It panics on those that [Options.Validate] refuses, on a nil
// store and on a keystore.Cached of another Service.
func KeyAuthenticator(keys keystore.Store, o Options) Authenticator {
	if absent(keys) {
		panic("middleware: KeyAuthenticator: the key store is nil")
	}
	if err := o.Validate(); err != nil {
		panic(err.Error())
	}
	o = o.withDefaults()
	service, err := o.Service.Resolve(keys)
	if err != nil {
		panic("middleware: KeyAuthenticator: " + err.Error())
	}
	o.Service = service
	return o.authenticator(keys)
}

func (o Options) authenticator(keys keystore.Store) *keyAuthenticator {
	return newKeyAuthenticator(keys, o.Keys, o.Service, o.Failures, o.ClientIP)
}
