package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/bearer"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// keyAuthenticator finds out whose API key a request carries.
type keyAuthenticator struct {
	Options
	proxies  *proxies
	throttle *throttle // nil without one
	keys     keystore.Store
	cached   bool // keys is a *keystore.Cached; another store may embed one
}

// ErrNoCredentials is what [Options].Authenticate returns for a request that
// carries no credentials of its kind.
var ErrNoCredentials = errors.New("middleware: the request carries no credentials")

// errForeignToken is the answer to a Bearer token of another shape, which may be
// one that Options.Authenticate knows.
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
	parsed, err := a.Service.Parse(token)
	malformed, isMalformed := err.(keystore.TokenError)
	switch {
	case isMalformed && a.Authenticate != nil && !ownHeader && !a.claims(token):
		return nil, errForeignToken
	case a.RejectBrowsers && fromPage(r.Header):
		return nil, a.failed(r, invalidKey("A secret API key must not be used in a browser, "+
			"where everybody can read it. Revoke this key, and call the API from your server or use a publishable key."))
	case isMalformed:
		return nil, a.failed(r, invalidKey(string(malformed)))
	case err != nil:
		return nil, err
	case parsed.Environment != "" && !a.accepts(parsed.Environment):
		return nil, a.failed(r, a.otherEnvironment(parsed.Environment))
	}
	caller, err := a.verify(r, &parsed)
	if err != nil {
		return nil, err
	}
	if !caller.AllowsAddress(netip.Addr{}) && !caller.AllowsAddress(a.proxies.client(r)) {
		return nil, refusal(codes.AddressNotAllowed).of(caller)
	}
	if a.Uses != nil {
		a.Uses.Record(caller, func() netip.Addr { return a.proxies.client(r) })
	}
	return caller, nil
}

// token returns the token of the request, and whether it came in the header for
// keys alone.
func (a *keyAuthenticator) token(r *http.Request) (token string, found bearer.Found, ownHeader bool) {
	token, found = bearer.Parse(r.Header["Authorization"])
	if a.KeyHeader == "" {
		return token, found, false
	}
	values := r.Header[a.KeyHeader]
	switch {
	case len(values) == 0:
		return token, found, false
	case len(values) > 1 || found != bearer.Nothing:
		return "", bearer.Bad, false
	}
	return strings.Trim(values[0], " \t"), bearer.Token, true
}

// claims reports whether a token begins like one of the service, in the present
// format or in a legacy one with a Prefix. If not, it may belong to something
// else, as a JWT does.
func (a *keyAuthenticator) claims(token string) bool {
	return strings.HasPrefix(token, a.Service.Prefix+"_") ||
		slices.ContainsFunc(a.Service.Legacy, func(l keystore.LegacyFormat) bool {
			return l.Prefix != "" && strings.HasPrefix(token, l.Prefix)
		})
}

func (a *keyAuthenticator) badHeader() string {
	if a.KeyHeader != "" {
		return "The API key must be sent once, in one header: as " + a.KeyHeader + ": YOUR_API_KEY, " +
			"or as Authorization: Bearer YOUR_API_KEY, with a space in between."
	}
	return "The header must be sent once, as Authorization: Bearer YOUR_API_KEY, with a space in between."
}

// lookupTimeout bounds a look-up in a store that is not behind a
// keystore.Cached, which has a bound of its own.
const lookupTimeout = 5 * time.Second

// lookUp asks the store, and returns who calls, if the key may be used now and
// here. The look-up goes on when the client leaves: net/http also reports a
// client that has only closed its sending half.
func (a *keyAuthenticator) lookUp(r *http.Request, t *keystore.Token) (*keystore.Caller, error) {
	ctx := r.Context()
	if !a.cached {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
	}
	caller, err := t.Caller(ctx, a.keys, a.Service.Scopes)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return nil, wrongKey
	case err != nil:
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
	return a.Environment == "" || e == a.Environment
}

func (a *keyAuthenticator) otherEnvironment(e keystore.Environment) *Problem {
	return invalidKey("This host takes " + string(a.Environment) + " keys, and the API key is a " + string(e) + " one.")
}

// verify is lookUp with the throttle around it. What the cache knows to be active
// passes always. With ReportOnly an active key is not refused: it would be nobody
// then.
func (a *keyAuthenticator) verify(r *http.Request, t *keystore.Token) (*keystore.Caller, error) {
	if a.throttle == nil {
		return a.lookUp(r, t)
	}
	known, remembered := t.Remembered(a.keys, a.Service.Scopes)
	if known != nil && a.accepts(known.Environment()) {
		return known, nil
	}
	spent := a.throttle.take(r.Context(), a.proxies.bucket(r), 0)
	if spent != nil && !remembered && !a.ReportOnly {
		return nil, spent
	}
	caller, err := a.lookUp(r, t)
	switch refused, wrong := err.(*Problem); {
	case wrong && spent != nil:
		return nil, spent // remembered are keys that were active once; this one is not any more
	case wrong:
		return nil, a.failed(r, refused)
	}
	return caller, err
}

// failed charges a failure, and returns how the request is refused.
func (a *keyAuthenticator) failed(r *http.Request, refused *Problem) *Problem {
	if a.throttle != nil {
		if spent := a.throttle.take(r.Context(), a.proxies.bucket(r), 1); spent != nil {
			return spent
		}
	}
	return refused
}

// wrongKey is the refusal of a token that names no active key.
var wrongKey = invalidKey("")

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
