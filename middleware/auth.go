package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/bearer"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/scope"
)

// authentication finds out who calls.
type authentication struct {
	keys     *keyAuthenticator                             // nil without a key store
	other    func(*http.Request) (*keystore.Caller, error) // Options.Authenticate; may be nil beside keys
	registry *scope.Registry
	missing  *Problem // for a request without credentials
	report   *reporter
}

func newAuthentication(keys keystore.Store, o Options, report *reporter) *authentication {
	a := &authentication{other: o.Authenticate, registry: o.Service.Scopes, report: report}
	a.missing = refusal(codes.APIKeyMissing)
	a.missing.Challenge = `Bearer realm="api"`
	if keys == nil {
		a.missing.Detail = "No credentials were sent, or none that this service takes."
	} else {
		_, cached := keys.(*keystore.Cached)
		a.keys = &keyAuthenticator{o, report.proxies, newThrottle(o.Failures), keys, cached}
		_, remembers := keys.(interface{ Stats() keystore.CacheStats }) // also what embeds a Cached
		if a.keys.throttle != nil && !remembers {
			o.Hooks.logger().Warn("middleware: Options.Failures without a keystore.Cached: " +
				"an address that has used them up gets 429 for its active keys too")
		}
	}
	return a
}

// check returns the caller of a request that is answered by x.
func (a *authentication) check(x *exchange, w http.ResponseWriter, r *http.Request) (*keystore.Caller, denial) {
	x.authorization = firstValue(r.Header["Authorization"])
	if a.keys != nil && a.keys.KeyHeader != "" {
		x.apiKey = firstValue(r.Header[a.keys.KeyHeader])
	}
	caller, err := a.caller(r)
	if err == nil && known(caller) && fits(caller, a.registry) {
		return caller, denial{}
	}
	refused, isProblem := errors.AsType[*Problem](err)
	broken := ""
	switch {
	case isProblem && refused != nil && refused.Status >= 400 && refused.Status <= 599:
		if refused.log != nil {
			a.report.sampled(w, r, slog.LevelWarn, "a request does not come through the gateway", refused.log)
		}
		return nil, denial{problem: refused}
	case errors.Is(err, ErrNoCredentials):
		missing := a.missing
		if mistake := bearer.Mistake(r.Header["Authorization"]); a.keys != nil && mistake != "" {
			explained := *missing
			explained.Detail = "The Authorization header has " + mistake +
				". Send the header Authorization: Bearer YOUR_API_KEY."
			missing = &explained
		}
		return nil, denial{problem: missing}
	case err == nil && known(caller):
		broken = "a caller of another scope registry"
	case err == nil:
		broken = "neither a caller nor an error"
	case isProblem && refused == nil:
		broken = "a nil *Problem"
	case isProblem:
		broken = fmt.Sprintf("a *Problem of status %d, which is no refusal", refused.Status)
	}
	if broken != "" {
		a.report.fault(w, r, "Options.Authenticate breaks its contract", errors.New("it returned "+broken))
		return nil, denied(codes.Internal)
	}
	if _, ok := errors.AsType[*keystore.FieldsError](err); ok {
		// Not a fault: anybody with an account elsewhere may cause it.
		a.report.sampled(w, r, slog.LevelInfo, "the credentials name a caller that is not accepted", err)
		return nil, denied(codes.CallerNotAccepted)
	}
	a.report.fault(w, r, "the credentials of a request could not be checked", err)
	return nil, denied(codes.KeyStore)
}

// hint says what the host may have forgotten, where a request is refused for it.
func (a *authentication) hint(w http.ResponseWriter, r *http.Request, code string) {
	missing, proxies := code == codes.APIKeyMissing, a.report.proxies
	peer, ok := parseAddr(r.RemoteAddr)
	switch {
	case missing && r.Method == http.MethodOptions && len(r.Header["Access-Control-Request-Method"]) > 0:
		a.report.hint(w, r, "middleware: a browser's preflight request, which has no credentials, is refused: "+
			"put the CORS middleware outside Authenticate")
	case missing && a.keys != nil && a.keys.KeyHeader == "" && a.keys.claims(firstValue(r.Header["X-Api-Key"])):
		a.report.hint(w, r, "middleware: an API key in the header X-API-Key is not looked at: set Options.KeyHeader, "+
			"or send it as Authorization: Bearer")
	case code == codes.AddressNotAllowed && len(r.Header["X-Forwarded-For"]) > 0 && ok && !proxies.trust(peer):
		a.report.hint(w, r, "middleware: a caller is refused by the address of the connection, and X-Forwarded-For is not "+
			"looked at: if that is your proxy, add it to Options.TrustedProxies", "connection", peer)
	}
}

// caller asks for an API key first, so that a revoked one is refused even
// beside a valid session.
func (a *authentication) caller(r *http.Request) (*keystore.Caller, error) {
	if a.keys == nil {
		return a.session(r)
	}
	caller, err := a.keys.caller(r)
	if a.other == nil || err != nil && err != ErrNoCredentials && err != errForeignToken {
		return caller, err
	}
	second, otherErr := a.session(r)
	switch none := errors.Is(otherErr, ErrNoCredentials); {
	case err == nil && none:
		return caller, nil
	case err == nil && a.keys.ReportOnly && unchecked(otherErr):
		return nil, otherErr
	case err == nil && (otherErr != nil || known(second)):
		return nil, refusal(codes.SeveralCredentials)
	case err == errForeignToken && none:
		return nil, a.keys.failed(r, invalidKey(
			"The Bearer token is not valid. Check that it is whole, and that it has not expired or been revoked."))
	}
	return second, otherErr
}

// session asks Options.Authenticate. It refuses a caller who may not call now,
// or not from here.
func (a *authentication) session(r *http.Request) (*keystore.Caller, error) {
	c, err := a.other(r)
	if err != nil {
		return c, err
	}
	if err := c.Refused(); err != nil {
		return nil, invalidKey(refusedDetail(c, err)).of(c)
	}
	if !c.AllowsAddress(netip.Addr{}) && !c.AllowsAddress(a.report.proxies.client(r)) {
		refused := refusal(codes.AddressNotAllowed)
		refused.Detail = "The credentials may not be used from this address."
		return nil, refused.of(c)
	}
	return c, nil
}

// fits reports whether the registry knows all scopes of a caller that
// keystore.NewCaller made. Of a key that was stored before, unknown scopes grant
// nothing.
func fits(c *keystore.Caller, r *scope.Registry) bool {
	return c.Granted().Registry() == r || c.KeyID() != ""
}

// unchecked reports whether an Options.Authenticate with this answer could not
// check the credentials.
func unchecked(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p != nil && p.Status >= http.StatusInternalServerError
	}
	_, notAccepted := errors.AsType[*keystore.FieldsError](err)
	return err != nil && !notAccepted && !errors.Is(err, ErrNoCredentials)
}
