package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/bearer"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// requestHeader matches headers that browsers, proxies and other stages write.
var requestHeader = regexp.MustCompile(`^(Accept|If-|Proxy-|Sec-|X-Forwarded-|` +
	`(Cookie2?|Dnt|Expect|Forwarded|From|Host|Idempotency-Key` +
	`|Max-Forwards|Origin|Priority|Range|Referer|Traceparent|Tracestate|User-Agent|Via|X-Real-Ip|X-Requested-With)$)`)

type keyAuthenticator struct {
	options  Options
	service  keystore.Service
	keys     keystore.Store
	cache    *keystore.Cached // keys, or nil when it is another store, which may embed one
	memory   rememberer       // keys, or nil when it neither is nor embeds a Cached
	proxies  *proxies
	throttle *throttle
	invalid  *Problem // for a token that names no active key
	joined   bool     // a Bearer token of another shape may be somebody else's

	reportOnly bool // the throttle refuses no active key, which would be nobody then
}

// A rememberer knows which tokens were usable. A type that embeds a
// keystore.Cached is one, and decides by its own Lookup whether they still are.
type rememberer interface {
	Remembered(keystore.Token) (caller *keystore.Caller, wasUsable bool)
}

func newKeyAuthenticator(keys keystore.Store, o Options, p *proxies) *keyAuthenticator {
	a := &keyAuthenticator{
		options: o, service: o.Service, keys: keys, proxies: p,
		throttle: newThrottle(o.Failures), joined: o.Authenticate != nil,
		reportOnly: o.ReportOnly,
	}
	if cache, itself := keystore.CacheOf(keys); itself {
		a.cache = cache
	}
	a.memory, _ = keys.(rememberer)
	if a.throttle != nil && a.memory == nil {
		o.Hooks.logger().Warn("middleware: Options.Failures without a keystore.Cached: " +
			"an address that has used them up gets 429 for its active keys too")
	}
	a.invalid = invalidKey("")
	return a
}

// errForeignToken is the answer of a joined keyAuthenticator to a Bearer token
// of another shape.
var errForeignToken = errors.New("middleware: the token is no API key of this service")

// caller returns who has the active key that the request carries,
// ErrNoCredentials, errForeignToken or the reason why there is none.
func (a *keyAuthenticator) caller(r *http.Request) (*keystore.Caller, error) {
	token, found, ownHeader := a.token(r)
	switch found {
	case bearer.Nothing:
		return nil, ErrNoCredentials
	case bearer.Bad:
		return nil, a.failed(r, invalidKey(a.badHeader()))
	}
	parsed, err := a.service.Parse(token)
	malformed, isMalformed := err.(keystore.TokenError)
	switch {
	case isMalformed && a.joined && !ownHeader && !a.service.Claims(token):
		return nil, errForeignToken
	case a.options.RejectBrowsers && fromPage(r.Header):
		return nil, a.failed(r, invalidKey("A secret API key must not be used in a browser, "+
			"where everybody can read it. Revoke this key, and call the API from your server or use a publishable key."))
	case isMalformed:
		return nil, a.failed(r, invalidKey(string(malformed)))
	case err != nil:
		return nil, err
	case parsed.Environment != "" && !a.accepts(parsed.Environment):
		return nil, a.failed(r, a.otherEnvironment(parsed.Environment))
	}
	var caller *keystore.Caller
	if a.throttle == nil {
		caller, err = a.verify(r, &parsed)
	} else {
		caller, err = a.verifyThrottled(r, &parsed)
	}
	if err != nil {
		return nil, err
	}
	if !caller.AllowsAddress(netip.Addr{}) && !caller.AllowsAddress(a.proxies.client(r)) {
		return nil, refusal(codes.AddressNotAllowed).of(caller)
	}
	if a.options.Uses != nil {
		a.options.Uses.Record(caller, func() netip.Addr { return a.proxies.client(r) })
	}
	return caller, nil
}

// token returns the token of the request, and whether it came in the header for
// keys alone.
func (a *keyAuthenticator) token(r *http.Request) (token string, found bearer.Found, ownHeader bool) {
	token, found = bearer.Parse(r.Header["Authorization"])
	if a.options.KeyHeader == "" {
		return token, found, false
	}
	values := r.Header[a.options.KeyHeader]
	switch {
	case len(values) == 0:
		return token, found, false
	case len(values) > 1 || found != bearer.Nothing:
		return "", bearer.Bad, false
	}
	return strings.Trim(values[0], " \t"), bearer.Token, true
}

func (a *keyAuthenticator) badHeader() string {
	if a.options.KeyHeader != "" {
		return "The API key must be sent once, in one header: as " + a.options.KeyHeader + ": YOUR_API_KEY, " +
			"or as Authorization: Bearer YOUR_API_KEY, with a space in between."
	}
	return "The header must be sent once, as Authorization: Bearer YOUR_API_KEY, with a space in between."
}

// lookupTimeout bounds a look-up in a store that is not behind a
// keystore.Cached, which has a bound of its own.
const lookupTimeout = 5 * time.Second

// verify asks the store, and returns who calls, if the key may be used now and
// here. The look-up goes on when the client leaves: net/http also reports a
// client that has only closed its sending half.
func (a *keyAuthenticator) verify(r *http.Request, t *keystore.Token) (*keystore.Caller, error) {
	ctx := r.Context()
	if a.cache == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
	}
	caller, err := t.Caller(ctx, a.keys, a.service.Scopes)
	switch {
	case err == nil:
	case errors.Is(err, keystore.ErrNotFound):
		return nil, a.invalid
	default:
		return nil, err
	}
	if err := caller.Refused(); err != nil {
		return nil, invalidKey(refusedDetail(caller, err)).of(caller)
	}
	if !a.accepts(caller.Environment()) {
		return nil, a.otherEnvironment(caller.Environment()).of(caller)
	}
	return caller, nil
}

func (a *keyAuthenticator) accepts(e keystore.Environment) bool {
	return a.options.Environment == "" || e == a.options.Environment
}

func (a *keyAuthenticator) otherEnvironment(e keystore.Environment) *Problem {
	return invalidKey("This host takes " + string(a.options.Environment) +
		" keys, and the API key is a " + string(e) + " one.")
}

func (a *keyAuthenticator) verifyThrottled(r *http.Request, t *keystore.Token) (*keystore.Caller, error) {
	remembered := false
	if a.memory != nil {
		var caller *keystore.Caller
		caller, remembered = a.memory.Remembered(*t)
		if a.cache != nil && caller != nil && a.accepts(caller.Environment()) {
			return caller.Bind(a.service.Scopes), nil
		}
	}
	release, refused := a.throttle.reserve(r.Context(), a.proxies.bucket(r), t.Digests()[0])
	if refused != nil {
		if !remembered && !a.reportOnly {
			return nil, refused
		}
		// Only keys that were once active are remembered. One that is not
		// any more gets the throttle's refusal.
		caller, err := a.verify(r, t)
		if _, wrong := err.(*Problem); wrong {
			return nil, refused
		}
		return caller, err
	}
	failed := false // unless the answer says so: a panic of the store is not the client's fault
	defer func() { release(failed) }()
	caller, err := a.verify(r, t)
	_, failed = err.(*Problem)
	return caller, err
}

// failed charges a failure that needed no store.
func (a *keyAuthenticator) failed(r *http.Request, refused *Problem) *Problem {
	if a.throttle != nil {
		if spent := a.throttle.take(r.Context(), a.proxies.bucket(r)); spent != nil {
			return spent
		}
	}
	return refused
}

func invalidKey(detail string) *Problem {
	p := refusal(codes.APIKeyInvalid)
	p.Challenge = `Bearer realm="api", error="invalid_token"`
	if detail != "" {
		p.Detail = detail
	}
	return p
}

// fromPage reports whether a script or form of a web page sent the request.
// Servers that imitate fetch send Sec-Fetch-Mode alone.
func fromPage(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 0 && site[0] != "none" || len(h["Origin"]) > 0
}

// refusedDetail explains the refusal. It leaks nothing: only a holder of the
// credentials can send them.
func refusedDetail(c *keystore.Caller, err error) string {
	expires, revoked := c.Expiry()
	what := "The API key"
	if c.KeyID() == "" {
		what = "The credentials"
	}
	switch {
	case errors.Is(err, keystore.ErrExpired):
		return what + " expired on " + expires.UTC().Format("2006-01-02 15:04:05 UTC") + "."
	case errors.Is(err, keystore.ErrRevoked):
		return "The API key was revoked on " + revoked.UTC().Format("2006-01-02 15:04:05 UTC") + "."
	case errors.Is(err, keystore.ErrSuspended):
		return "The API key is suspended."
	}
	return ""
}
