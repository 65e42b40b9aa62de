package middleware

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/bearer"
)

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
	return newKeyAuthenticator(keys, o)
}

type keyAuthenticator struct {
	KeyOptions
	service   keystore.Service
	keys      keystore.Store
	cache     cache // nil when keys is no cache
	clientIP  ClientIP
	throttle  *throttle
	challenge string   // of a refused token
	invalid   *Problem // for a token that names no live key; nil if other code may change it
	unclaimed error    // answer of a joined one to a token of another shape; nil if it is not joined
}

// keyAuthenticators returns those of an authenticator, joined ones included.
func keyAuthenticators(a Authenticator) (all []*keyAuthenticator) {
	switch a := a.(type) {
	case *keyAuthenticator:
		return []*keyAuthenticator{a}
	case *joined:
		for _, one := range a.authenticators {
			all = append(all, keyAuthenticators(one)...)
		}
	}
	return all
}

// cache is the part of keystore.Cached that answers from memory.
type cache interface {
	Remembered(t keystore.Token) (k *keystore.Key, wasUsable bool)
}

func newKeyAuthenticator(keys keystore.Store, o Options) *keyAuthenticator {
	a := &keyAuthenticator{KeyOptions: o.Keys, service: o.Service, keys: keys, clientIP: o.ClientIP, throttle: newThrottle(o)}
	a.challenge = `Bearer realm="` + o.Keys.Realm + `", error="invalid_token"`
	a.cache, _ = keys.(cache)
	return a
}

// Authenticate returns the principal of the live key that the request carries.
func (a *keyAuthenticator) Authenticate(r *http.Request) (Principal, error) {
	token, found, ownHeader := a.token(r)
	switch found {
	case bearer.Nothing:
		return Principal{}, ErrNoCredentials
	case bearer.Bad:
		return Principal{}, a.failed(r, a.refusal(a.badHeader()))
	}
	parsed, err := a.service.Parse(token)
	malformed, isMalformed := err.(keystore.TokenError)
	switch {
	case isMalformed && a.unclaimed != nil && !ownHeader && !a.service.Claims(token):
		return Principal{}, a.unclaimed
	case a.RejectBrowsers && fromPage(r.Header):
		return Principal{}, a.failed(r, a.refusal("A secret API key must not be used in a browser, where everybody can read it. Revoke this key, and call the API from your server or use a publishable key."))
	case isMalformed:
		return Principal{}, a.failed(r, a.refusal(string(malformed)))
	case err != nil:
		return Principal{}, err
	case parsed.Environment != "" && !a.serves(parsed.Environment):
		return Principal{}, a.failed(r, a.otherEnvironment(parsed.Environment))
	}
	var key *keystore.Key
	if a.throttle == nil {
		key, err = a.verify(r, &parsed)
	} else {
		key, err = a.verifyThrottled(r, &parsed)
	}
	if err != nil {
		return Principal{}, err
	}
	if len(key.Networks) > 0 && !key.AllowsAddress(a.clientIP.From(r)) {
		return Principal{}, refusal(codeAddressNotAllowed).of(key)
	}
	if a.LastUsed != nil {
		a.LastUsed.Record(key)
	}
	return Principal{key}, nil
}

// token returns the token of the request, and whether it came in the header for
// keys alone.
func (a *keyAuthenticator) token(r *http.Request) (token string, found bearer.Found, ownHeader bool) {
	token, found = bearer.Parse(r.Header["Authorization"])
	if a.Header == "" {
		return token, found, false
	}
	values := r.Header[a.Header]
	switch {
	case len(values) == 0:
		return token, found, false
	case len(values) > 1 || found != bearer.Nothing:
		return "", bearer.Bad, false
	}
	return strings.Trim(values[0], " \t"), bearer.Token, true
}

func (a *keyAuthenticator) badHeader() string {
	if a.Header != "" {
		return "The API key must be sent once, in one header: as " + a.Header + ": YOUR_API_KEY, or as Authorization: Bearer YOUR_API_KEY, with a space in between."
	}
	return "The header must be sent once, as Authorization: Bearer YOUR_API_KEY, with a space in between."
}

// lookupTimeout bounds a look-up in a store that is not behind a
// keystore.Cached, which has a bound of its own.
const lookupTimeout = 5 * time.Second

// verify asks the store, and returns the key, bound, if it may be used now and
// here. The look-up goes on when the client leaves: net/http also reports a
// client that has only closed its sending half.
func (a *keyAuthenticator) verify(r *http.Request, t *keystore.Token) (*keystore.Key, error) {
	ctx := r.Context()
	if a.cache == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
	}
	key, err := t.Lookup(ctx, a.keys)
	switch {
	case err == nil:
	case errors.Is(err, keystore.ErrNotFound) && a.invalid != nil:
		return nil, a.invalid
	case errors.Is(err, keystore.ErrNotFound):
		return nil, a.refusal("")
	default:
		return nil, err
	}
	if err := key.Refused(); err != nil {
		return nil, a.refusal(refusedDetail(key, err)).of(key)
	}
	if !a.serves(key.Environment) {
		return nil, a.otherEnvironment(key.Environment).of(key)
	}
	return key.Bind(a.service.Scopes), nil
}

func (a *keyAuthenticator) serves(e keystore.Environment) bool {
	return a.Environment == "" || e == a.Environment
}

func (a *keyAuthenticator) otherEnvironment(e keystore.Environment) *Problem {
	return a.refusal("This host takes " + string(a.Environment) + " keys, and the API key is a " + string(e) + " one.")
}

func (a *keyAuthenticator) verifyThrottled(r *http.Request, t *keystore.Token) (*keystore.Key, error) {
	remembered := false
	if a.cache != nil {
		var key *keystore.Key
		if key, remembered = a.cache.Remembered(*t); key != nil && a.serves(key.Environment) {
			return key.Bind(a.service.Scopes), nil
		}
	}
	release, refused := a.throttle.reserve(r.Context(), a.clientIP.bucket(r), t.Digests()[0])
	if refused != nil {
		if !remembered {
			return nil, refused
		}
		// Only keys that were once live are remembered. One that is not live
		// any more gets the throttle's refusal.
		key, err := a.verify(r, t)
		if _, wrong := err.(*Problem); wrong {
			return nil, refused
		}
		return key, err
	}
	failed := false // unless the answer says so: a panic of the store is not the client's fault
	defer func() { release(failed) }()
	key, err := a.verify(r, t)
	_, failed = err.(*Problem)
	return key, err
}

// failed charges a failure that needed no store.
func (a *keyAuthenticator) failed(r *http.Request, refused *Problem) *Problem {
	if a.throttle != nil {
		if spent := a.throttle.take(r.Context(), a.clientIP.bucket(r)); spent != nil {
			return spent
		}
	}
	return refused
}

func (a *keyAuthenticator) refusal(detail string) *Problem {
	p := refusal(codeAPIKeyInvalid)
	p.Challenge = a.challenge
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
// key can send it.
func refusedDetail(key *keystore.Key, err error) string {
	switch {
	case errors.Is(err, keystore.ErrExpired):
		return "The API key expired on " + key.ExpiresAt.UTC().Format("2006-01-02 15:04:05 UTC") + "."
	case errors.Is(err, keystore.ErrRevoked):
		return "The API key was revoked on " + key.RevokedAt.UTC().Format("2006-01-02 15:04:05 UTC") + "."
	case errors.Is(err, keystore.ErrSuspended):
		return "The API key is suspended."
	}
	return ""
}
