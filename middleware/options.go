package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Options configure an [API] or a [Guard]. The zero value authenticates, checks
// scopes and keeps replies in memory, without rate limits.
type Options struct {
	// Base is the path under which every route of an API lies; "" means
	// "/api/v1". A Guard has no routes, and does not use it.
	Base string

	// Service says which scopes there are and what the keys look like. Where it
	// is zero, that of a keystore.Cached in keys is taken. Without a Cached, give
	// it the Service of the issuing.Issuer.
	Service keystore.Service

	// RequestIDHeader is the response header that carries the request id; ""
	// means [DefaultRequestIDHeader].
	RequestIDHeader string

	// TrustRequestID reports whether the request comes from a trusted proxy. Then
	// the id that it brings in the same header is kept, if there is exactly one
	// and it matches ^[A-Za-z0-9._-]{1,64}$. Nil trusts nobody, and so does one
	// that panics.
	TrustRequestID func(*http.Request) bool

	// KeyHeader, when set, is a header that may carry the API key in place of
	// Authorization, such as "X-API-Key": one that no browser or proxy writes. A
	// request with a Bearer token too is refused.
	KeyHeader string

	// Environment, when set, is the only one whose API keys are accepted, for
	// hosts that serve just one.
	Environment keystore.Environment

	// RejectBrowsers refuses API keys that a browser sent from a page
	// (Sec-Fetch-Site other than "none", or an Origin header): it is a leaked key.
	// Revoke it.
	RejectBrowsers bool

	// Uses, when set, records each accepted key, the client's address, and
	// the scopes that the request needs, as far as the key holds them: of a
	// requirement that lets it pass, and those that a handler tells
	// [keystore.Caller.Use]. It also notes why keys are refused, with a status
	// below 500. Its Run writes all that down.
	Uses *keystore.Uses

	// Authenticate, when set, finds callers without an API key, such as by a
	// session or a JWT. Without a key store it finds all callers. Beside one it
	// is asked for requests that carry no API key or an active one; a Bearer
	// token that has not the form of a key is left to it. It is called from many
	// requests at once. Its answer is one of four:
	//
	//   - a caller and no error: the request is that caller's. One that has
	//     expired, or may not call from this address, is refused as a key is;
	//   - [ErrNoCredentials], also wrapped: the request carries no credentials
	//     of this kind. A Bearer token that nobody takes is refused as an
	//     invalid key;
	//   - a [*Problem], also wrapped, refuses the credentials with this response.
	//     The *keystore.FieldsError of [keystore.NewCaller] refuses them with 403,
	//     and goes to the log at level info;
	//   - any other error: the credentials could not be checked. The client
	//     gets 503 and may retry; the error goes to the log.
	//
	// For anything else the client gets 500, with a line in the log.
	//
	// A request with an active API key gets 400 for each answer but
	// ErrNoCredentials: two servers on the way may believe different credentials.
	// To let the key win, return ErrNoCredentials for a request that has an
	// Authorization header.
	//
	// A page of another site can make a browser send a cookie. A function that
	// reads cookies refuses these requests by Check of http.CrossOriginProtection.
	Authenticate func(*http.Request) (*keystore.Caller, error)

	// ResourceMetadata is the URL of this API's protected resource metadata (RFC
	// 9728), where clients find who issues tokens for it. Every Bearer challenge
	// names it, as servers of MCP have to.
	ResourceMetadata string

	// ReportOnly is for an API that has callers without keys already. A request
	// that authentication would refuse goes on without a caller: [CallerFrom]
	// returns nil, and each handler has to ask it. [Event].ReportedCode is the code
	// of the refusal. No scope is asked for, an Idempotency-Key is ignored, and of
	// the limits only RateLimit.Client counts.
	//
	// A refusal with a 5xx stays: the credentials could not be checked, or
	// Authenticate broke its contract. An active key is checked however many
	// failures its address has: a retry with it must not run without a caller. A
	// caller who is authenticated is served as always, and needs the scopes. New
	// and NewAPI log a warning.
	ReportOnly bool

	// Failures is how many requests with a refused API key one client address
	// may send, an IPv6 address as its /64: ratelimit.MustParse("20-M") is 20 at
	// once and 20 a minute. Each process counts for itself. Zero is any number.
	// See [Guard.Authenticate].
	//
	// A failure is charged when the key store has answered. Requests that come
	// before that are looked up too: over a keystore.Cached at most 64 wrong keys
	// at one moment, by two digests each if they look imported, while more get 503;
	// over another store as many as come. All but the failures left get 429.
	Failures ratelimit.Limit

	// TrustedProxies are the proxies whose X-Forwarded-For is believed: the client
	// is its rightmost address that is not one of them. None: the client is
	// whoever opened the connection. Failures, RateLimit.Client, the networks of
	// keys and [Event].ClientIP go by it. Use no middleware that sets RemoteAddr
	// by a header, such as chi's RealIP: it lets a client choose its address.
	TrustedProxies []netip.Prefix

	// TrustUnixSocket says that a proxy opens the connections that come through a
	// unix socket, and is one of TrustedProxies. Otherwise all clients behind a
	// socket count as one without an address, which the log says once.
	TrustUnixSocket bool

	RateLimit   RateLimitOptions
	Idempotency IdempotencyOptions
	Quota       QuotaOptions

	// NoShouldRetry leaves out the field X-Should-Retry, which SDKs obey. It is
	// "true" on a refusal that a repeat with the same Idempotency-Key gets past,
	// and "false" where each repeat gets the same: on the refusals of a used
	// Idempotency-Key, an unknown outcome and a response that was not retained,
	// and on a 408, 409, 425, 429 or 5xx of a handler that is stored. One that a
	// handler has set itself stays.
	NoShouldRetry bool

	// Hooks may be nil. A Guard without Hooks uses those of the stage outside it.
	Hooks *Hooks
}

// Validate returns all mistakes in the options, joined by [errors.Join], or
// nil. New and NewAPI panic with the same error. A program that reads its
// options from a configuration calls Validate first.
func (o Options) Validate() error {
	o = o.withDefaults()
	var m mistakes
	add := func(field string, err error) { m = append(m, named("middleware: Options."+field, err)) } // Join drops nil
	if !strings.HasPrefix(o.Base, "/") || strings.ContainsAny(o.Base, "{} ") {
		add("Base", fmt.Errorf("%q is not a path; write it as \"/api/v1\"", o.Base))
	}
	_, _, err := o.Service.Resolve(nil)
	add("Service", err)
	add("RequestIDHeader", validHeader(o.RequestIDHeader))
	switch {
	case o.KeyHeader == "":
	case !validToken(o.KeyHeader):
		add("KeyHeader", fmt.Errorf("%q is not a header field name", o.KeyHeader))
	case o.KeyHeader == o.RequestIDHeader:
		add("KeyHeader", fmt.Errorf("the header %s is that of the request id", o.KeyHeader))
	case validHeader(o.KeyHeader) != nil || requestHeader.MatchString(o.KeyHeader):
		add("KeyHeader", fmt.Errorf(
			"the header %s has a meaning of its own; choose another one for the key, such as X-API-Key", o.KeyHeader))
	}
	if o.Environment != "" && !o.Environment.Known() {
		add("Environment", fmt.Errorf("unknown environment %q", o.Environment))
	}
	if u, err := url.Parse(o.ResourceMetadata); o.ResourceMetadata != "" &&
		(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.String() != o.ResourceMetadata ||
			strings.ContainsAny(o.ResourceMetadata, `"\ `)) {
		add("ResourceMetadata", fmt.Errorf("%q is not the URL of a document", o.ResourceMetadata))
	}
	if o.Failures != (ratelimit.Limit{}) {
		add("Failures", (&ratelimit.Policy{Name: "failures", Limit: o.Failures}).Validate())
	}
	add("TrustedProxies", o.proxies().validate())
	add("RateLimit", o.RateLimit.validate())
	add("Idempotency", o.Idempotency.validate())
	add("Quota", o.Quota.validate(o.Idempotency))
	return errors.Join(m...)
}

func (o Options) proxies() *proxies {
	return &proxies{o.TrustedProxies, o.TrustUnixSocket, sync.OnceFunc(func() {
		o.Hooks.logger().Warn("middleware: requests come through a unix socket, so all clients count as one, " +
			"without an address: set Options.TrustUnixSocket if a proxy sends them with X-Forwarded-For")
	})}
}

func (o Options) withDefaults() Options {
	o.Base = cmp.Or(o.Base, "/api/v1")
	o.RequestIDHeader = textproto.CanonicalMIMEHeaderKey(cmp.Or(o.RequestIDHeader, DefaultRequestIDHeader))
	o.KeyHeader = textproto.CanonicalMIMEHeaderKey(o.KeyHeader)
	o.Idempotency = o.Idempotency.withDefaults()
	return o
}
