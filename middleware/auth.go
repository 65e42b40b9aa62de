package middleware

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// AuthOptions configure [Authenticate].
type AuthOptions struct {
	// Format is the shape of this service's keys. A token of another shape is
	// refused without a call of the store.
	Format keystore.Format

	// Registry gives meaning to the scopes of a key; nil means scope.Contract().
	// Give a keystore.Cached the same one, or each request works it out again.
	Registry *scope.Registry

	// Realm is named in challenges (RFC 9110, section 11.5); "" means "api".
	Realm string

	// Environment, when set, is the only one whose keys are accepted, for hosts
	// that serve just one.
	Environment keystore.Environment

	// AllowIdenticalDuplicates accepts a request that repeats the same
	// Authorization line, which some proxies produce. Different lines are refused
	// in any case.
	AllowIdenticalDuplicates bool

	// RejectBrowsers refuses requests that a browser sent from a page
	// (Sec-Fetch-Site other than "none", or an Origin header), because a secret
	// key in a page is a leaked key. Such a key should be revoked.
	RejectBrowsers bool

	// LastUsed, when set, records each accepted key. Its Run writes them down.
	LastUsed *keystore.LastUsed

	Hooks *Hooks
}

// Authenticate lets a request pass that carries a live API key as a Bearer token
// (RFC 6750, section 2.1), and tells the stages and handlers inside whose it is
// (see [PrincipalFrom]).
//
//   - No credentials, or a scheme other than Bearer: 401 with a challenge.
//   - Anything else that is not a live key: 401 with error="invalid_token".
//   - The store does not answer: 503 with Retry-After, never 401, because clients
//     take a 401 for final.
//
// Nothing has to stand before it. [RequestID] and [Recover] SHOULD, and
// [ThrottleFailures] may. Put a keystore.Cached in front of a store that is not
// in memory: it is also what bounds how long a store may take.
func Authenticate(keys keystore.Store, o AuthOptions) func(http.Handler) http.Handler {
	if keys == nil {
		panic("middleware: Authenticate: the key store is nil")
	}
	if err := o.Format.Validate(); err != nil {
		panic("middleware: Authenticate: " + err.Error())
	}
	if o.Realm == "" {
		o.Realm = "api"
	}
	if !validQuoted(o.Realm) {
		panic("middleware: Authenticate: the realm " + quote(o.Realm) + " has a character that a challenge cannot carry")
	}
	if o.Environment != "" && !o.Environment.Known() {
		panic("middleware: Authenticate: unknown environment " + quote(string(o.Environment)))
	}
	if o.Registry == nil {
		o.Registry = scope.Contract()
	}
	a := &authenticator{AuthOptions: o, keys: keys, cache: peeker(keys)}
	a.missing = `Bearer realm="` + o.Realm + `"`
	a.invalid = a.missing + `, error="invalid_token"`
	for reason := range a.malformed {
		a.malformed[reason] = malformedDetail(keystore.Reason(reason))
	}
	return func(next http.Handler) http.Handler { return &authenticated{a, pieceOf(next)} }
}

type authenticated struct {
	*authenticator
	following piece
}

func (h *authenticated) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *authenticated) serve(s *state, w http.ResponseWriter, r *http.Request) {
	if s.key != nil {
		s.forget()
	}
	s.heed(h.Hooks)
	var refusal Problem
	key := h.authenticate(s, r, &refusal)
	if key == nil {
		s.refuse(w, r, StageAuth, refusal)
		return
	}
	s.auth, s.key = h.authenticator, key
	if h.LastUsed != nil {
		h.LastUsed.Record(key)
	}
	s.pass(StageAuth, "")
	h.following.serve(s, w, r)
}

type authenticator struct {
	AuthOptions
	keys             keystore.Store
	cache            peekStore // nil when keys has no accept cache
	missing, invalid string    // challenges
	malformed        [keystore.BadChecksum + 1]string
	faults           faults
}

// peekStore is the ability of a cache to say what it accepts without a call of
// the store behind it.
type peekStore interface {
	Peek(d keystore.Digest) (*keystore.Key, bool)
	Remembers(d keystore.Digest) bool
}

func peeker(keys keystore.Store) peekStore {
	cache, _ := keys.(peekStore)
	return cache
}

// authenticate returns the live key that the request carries, or nil and why not
// in refusal.
func (a *authenticator) authenticate(s *state, r *http.Request, refusal *Problem) *keystore.Key {
	token, found := bearer(r.Header["Authorization"], a.AllowIdenticalDuplicates)
	switch found {
	case noCredentials:
		*refusal = problem(codeAPIKeyMissing)
		refusal.Challenge = a.missing
		return nil
	case badCredentials:
		return a.failed(s, r, refusal, "The header must be sent once, as Authorization: Bearer YOUR_API_KEY, with a space in between.")
	}
	if a.RejectBrowsers && fromPage(r.Header) {
		return a.failed(s, r, refusal, "A secret API key must not be used in a browser, where everybody can read it. Revoke this key, and call the API from your server or use a publishable key.")
	}
	environment, err := a.Format.Parse(token)
	if err != nil {
		detail := ""
		if malformed, ok := errors.AsType[*keystore.FormatError](err); ok {
			detail = a.malformed[malformed.Reason]
		}
		return a.failed(s, r, refusal, detail)
	}
	if a.Environment != "" && environment != a.Environment {
		return a.failed(s, r, refusal, "This host takes "+string(a.Environment)+" keys, and the API key is a "+string(environment)+" one.")
	}
	digest := keystore.DigestOf(token)
	if s.throttle != nil {
		return a.throttled(s, r, digest, environment, refusal)
	}
	key, _ := a.verify(s.contextOf(r), s, digest, environment, refusal)
	return key
}

// throttled is verify behind ThrottleFailures: a failure is reserved before the
// store is asked and given back unless it was one.
func (a *authenticator) throttled(s *state, r *http.Request, digest keystore.Digest, environment keystore.Environment, refusal *Problem) *keystore.Key {
	if a.cache != nil {
		if key, ok := a.cache.Peek(digest); ok && key.Environment == environment && key.RefusedNow() == nil {
			return key.Bind(a.Registry)
		}
	}
	if !s.throttle.reserve(s, r, refusal) {
		if a.cache == nil || !a.cache.Remembers(digest) {
			return nil
		}
		// Nobody but who held a live key can be remembered.
		var because Problem
		key, _ := a.verify(s.contextOf(r), s, digest, environment, &because)
		return key
	}
	key, failed := a.verify(s.contextOf(r), s, digest, environment, refusal)
	if !failed {
		s.throttle.refund(s)
	}
	return key
}

// verify asks the store. It reports failed when the credentials are to blame, not
// the store.
func (a *authenticator) verify(ctx context.Context, s *state, digest keystore.Digest, environment keystore.Environment, refusal *Problem) (key *keystore.Key, failed bool) {
	key, err := a.keys.Lookup(ctx, digest)
	if err == nil && (key == nil || key.Digest != digest || key.Environment != environment) {
		err = keystore.ErrCorrupt
	}
	switch {
	case err == nil:
		if err := key.RefusedNow(); err != nil {
			*refusal = a.refusal(refusedDetail(key, err))
			return nil, true
		}
		return key.Bind(a.Registry), false
	case errors.Is(err, keystore.ErrNotFound):
		*refusal = a.refusal("")
		return nil, true
	case errors.Is(err, keystore.ErrCorrupt):
		s.hooks.logger().Error("the key store returned a record that does not belong to the key it was asked for", "error", err, "request_id", s.id)
		*refusal = a.refusal("")
		return nil, true
	}
	if ctx.Err() == nil {
		a.faults.log(s, "the key store does not answer", err)
	}
	*refusal = problem(codeKeyStore)
	return nil, false
}

// failed charges a failure that needed no store.
func (a *authenticator) failed(s *state, r *http.Request, refusal *Problem, detail string) *keystore.Key {
	if s.throttle == nil || s.throttle.reserve(s, r, refusal) {
		*refusal = a.refusal(detail)
	}
	return nil
}

func (a *authenticator) refusal(detail string) Problem {
	p := problem(codeAPIKeyInvalid)
	p.Challenge = a.invalid
	if detail != "" {
		p.Detail = detail
	}
	return p
}

type credentials int

const (
	noCredentials credentials = iota
	badCredentials
	bearerCredentials
)

// bearer finds the token of RFC 6750 in the Authorization values. A scheme that
// is not Bearer counts as no credentials: it may be meant for somebody else.
func bearer(values []string, allowDuplicates bool) (token string, found credentials) {
	if len(values) == 0 {
		return "", noCredentials
	}
	for _, other := range values[1:] {
		if !allowDuplicates || other != values[0] {
			return "", badCredentials
		}
	}
	const scheme = "bearer"
	value := values[0]
	// Trim takes longer than to see that there is nothing for it to do.
	if n := len(value); n > 0 && (value[0] <= ' ' || value[n-1] <= ' ') {
		value = strings.Trim(value, " \t")
	}
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", noCredentials
	}
	rest := value[len(scheme):]
	switch {
	case rest == "":
		return "", noCredentials
	case rest[0] == ' ':
		return strings.TrimLeft(rest, " "), bearerCredentials
	case rest[0] == '\t':
		return "", badCredentials // RFC 9110, section 11.4: one or more spaces
	}
	return "", noCredentials // another scheme that begins alike
}

// fromPage reports whether a script or form of a web page sent the request.
// Servers that imitate fetch send Sec-Fetch-Mode alone.
func fromPage(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 0 && site[0] != "none" || len(h["Origin"]) > 0
}

func malformedDetail(reason keystore.Reason) string {
	if reason == keystore.Publishable {
		return "This is a publishable key, which is made for browsers. This API needs a secret key."
	}
	text := reason.String()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// refusedDetail may say why, because whoever sent the digest's preimage held the
// key.
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

// validQuoted reports whether s can stand between the quotes of a quoted-string
// as it is.
func validQuoted(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
