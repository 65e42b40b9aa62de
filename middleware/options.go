package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"regexp"
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
		add("Failures", o.Failures.Validate())
		if o.Authenticator != nil {
			add("Failures", errors.New("it applies to API keys only; give it to KeyAuthenticator"))
		}
	}
	if k := o.Keys; o.Authenticator != nil && (k.Environment != "" || k.Header != "" || k.RejectBrowsers || k.LastUsed != nil) {
		add("Keys", errors.New("Environment, Header, RejectBrowsers and LastUsed apply to API keys only; give them to KeyAuthenticator"))
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

// KeyOptions say which API keys are accepted.
type KeyOptions struct {
	// Header, when set, is a header that may carry the key in place of
	// Authorization, such as "X-API-Key", and no header that a browser or proxy
	// writes. A request with a Bearer token too is refused.
	Header string

	// Realm is named in challenges (RFC 9110, section 11.5); "" means "api".
	Realm string

	// Environment, when set, is the only one whose keys are accepted, for hosts
	// that serve just one.
	Environment keystore.Environment

	// RejectBrowsers refuses requests that a browser sent from a page
	// (Sec-Fetch-Site other than "none", or an Origin header): a secret key in
	// a page is a leaked key. Revoke such a key.
	RejectBrowsers bool

	// LastUsed, when set, records each accepted key. Its Run writes them down.
	LastUsed *keystore.LastUsed
}

func (o KeyOptions) validate() error {
	var errs []error
	unquotable := func(c rune) bool { return c < 0x20 || c > 0x7e || c == '"' || c == '\\' }
	if strings.ContainsFunc(o.Realm, unquotable) {
		errs = append(errs, fmt.Errorf("the realm %q has a character that a challenge cannot carry", o.Realm))
	}
	switch {
	case o.Header != "" && !validToken(o.Header):
		errs = append(errs, fmt.Errorf("%q is not a header field name", o.Header))
	case o.Header != "" && (validHeader(o.Header) != nil || requestHeader.MatchString(o.Header)):
		errs = append(errs, fmt.Errorf("the header %s has a meaning of its own; choose another one for the key, such as X-API-Key", o.Header))
	}
	if o.Environment != "" && !o.Environment.Known() {
		errs = append(errs, fmt.Errorf("unknown environment %q", o.Environment))
	}
	return errors.Join(errs...)
}

// requestHeader matches headers that browsers, proxies and other stages write.
var requestHeader = regexp.MustCompile(`^(Accept|If-|Proxy-|Sec-|X-Forwarded-|(Cookie2?|Dnt|Expect|Forwarded|From|Host|Idempotency-Key` +
	`|Max-Forwards|Origin|Priority|Range|Referer|Traceparent|Tracestate|User-Agent|Via|X-Real-Ip|X-Requested-With)$)`)
