package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/sallyport-go/sallyport/keystore"
)

// An Authenticator finds out who sent a request. It must be safe for concurrent
// use. Its answer is one of four:
//
//   - a principal and no error: the request is that caller's;
//   - [ErrNoCredentials], also wrapped: the request carries no credentials of
//     this kind;
//   - a [*Problem], also wrapped: the credentials are refused, with this
//     response; or the *keystore.GrantError of [NewPrincipal], also wrapped:
//     they are refused with 403, and the error goes to the log at level info;
//   - any other error: the credentials could not be checked. The client gets
//     503 and may retry; the error goes to the log.
//
// For anything else the client gets 500, with a line in the log.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
}

// An AuthenticatorFunc is an [Authenticator] in one function.
type AuthenticatorFunc func(*http.Request) (Principal, error)

// Authenticate implements [Authenticator].
func (f AuthenticatorFunc) Authenticate(r *http.Request) (Principal, error) { return f(r) }

// ErrNoCredentials is the error of an [Authenticator] for a request that
// carries no credentials of its kind.
var ErrNoCredentials = errors.New("middleware: the request carries no credentials")

// FirstOf joins authenticators: the first whose answer is not
// [ErrNoCredentials] decides. So a revoked API key is refused, even beside a
// valid session. A request with credentials of several kinds is refused with
// 400, because two parties may believe different ones; see [Prefer].
//
// A [KeyAuthenticator] that is joined leaves Bearer tokens of another shape,
// such as JWTs, to the others. One that nobody takes is refused as an invalid
// key. Two of them need different prefixes: each refuses tokens of its own
// shape that its store does not have. An Authenticator around a
// KeyAuthenticator hides it, so that it refuses JWTs too: put it around what
// FirstOf returns.
//
// FirstOf panics without authenticators and on a nil one.
func FirstOf(authenticators ...Authenticator) Authenticator {
	return join("FirstOf", authenticators, true)
}

// Prefer is [FirstOf] that does not look at credentials after the first.
func Prefer(authenticators ...Authenticator) Authenticator {
	return join("Prefer", authenticators, false)
}

type joined struct {
	authenticators []Authenticator
	exclusive      bool // refuse several kinds of credentials
}

func join(name string, authenticators []Authenticator, exclusive bool) Authenticator {
	j := &joined{exclusive: exclusive}
	if len(authenticators) == 0 {
		panic("middleware: " + name + ": there is no authenticator")
	}
	for _, a := range authenticators {
		if absent(a) {
			panic("middleware: " + name + ": an authenticator is nil")
		}
		if keys, ok := a.(*keyAuthenticator); ok {
			joinedKeys := *keys
			joinedKeys.unclaimed = &unclaimedToken{keys, keys.refusal("")}
			a = &joinedKeys
		}
		j.authenticators = append(j.authenticators, a)
	}
	return j
}

// Authenticate implements [Authenticator].
func (j *joined) Authenticate(r *http.Request) (Principal, error) {
	none := ErrNoCredentials
	for i, a := range j.authenticators {
		principal, err := a.Authenticate(r)
		if errors.Is(err, ErrNoCredentials) {
			if unclaimed, ok := errors.AsType[*unclaimedToken](err); ok {
				none = unclaimed
			}
			continue
		}
		if j.exclusive && err == nil && principal.known() {
			for _, other := range j.authenticators[i+1:] {
				second, err := other.Authenticate(r)
				switch {
				case errors.Is(err, ErrNoCredentials):
				case err == nil && !second.known():
					return Principal{}, nil // it breaks its contract: 500, as alone
				default:
					return Principal{}, refusal(codeSeveralCredentials)
				}
			}
		}
		return principal, err
	}
	return Principal{}, none
}

// An unclaimedToken is the answer of a joined keyAuthenticator for a Bearer
// token of another shape: no credentials of its kind. If nobody else takes the
// token, the client learns that it is not valid, rather than that none was
// sent.
type unclaimedToken struct {
	keys    *keyAuthenticator
	refused *Problem
}

func (u *unclaimedToken) Error() string { return u.refused.Error() }
func (u *unclaimedToken) Unwrap() error { return ErrNoCredentials }

// absent reports whether v is nil, or a nil pointer or function in an
// interface, which would panic at the first request.
func absent(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return (value.Kind() == reflect.Pointer || value.Kind() == reflect.Func) && value.IsNil()
}

// Authenticate lets a request pass that carries a live API key as a Bearer
// token (RFC 6750, section 2.1), and tells the stages and handlers inside who
// the caller is (see [PrincipalFrom]).
//
//   - No credentials, or a scheme other than Bearer: 401 with a challenge.
//   - Anything else that is not a live key: 401 with error="invalid_token".
//   - The store does not answer: 503 with Retry-After, never 401, because
//     clients do not retry a 401.
//   - This client address has used up Options.Failures: 429. A live key that
//     the keystore.Cached remembers still passes, so wrong keys cannot lock out
//     a key that is in use.
//
// [Guard.RequestID] and [Guard.Recover] SHOULD stand before it. Nothing checks
// that: without RequestID its refusals have no id.
// Put a keystore.Cached in front of a store that is not in memory.
func (g *Guard) Authenticate(next http.Handler) http.Handler {
	if g.auth == nil {
		panic("middleware: Authenticate: the Guard was made without a key store and without an Authenticator")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.insideIdempotent(w, r) {
			g.misuse(w, r, StageAuth, "Authenticate stands inside Idempotent, so a replay would skip it; put it outside")
			return
		}
		x := exchangeOf(w)
		if x == nil {
			x = new(exchange) // w is foreign: this exchange only carries the id
			if f := factsOf(r.Context()); f != nil && f.response != nil {
				x.IDHeader, x.ID = f.response.IDHeader, f.response.ID
			}
		}
		// Start from empty facts: nothing that was decided for an outer caller
		// holds for this one.
		f := &facts{Context: r.Context(), response: x, hooks: g.hooks(r)}
		if g.isPreflight(r) {
			f.serve(g.options.Preflight, w, r)
			return
		}
		principal, refused := g.authenticate(x, w, r)
		if refused != nil {
			g.refuse(w, r, StageAuth, refused)
			return
		}
		f.principal = principal
		f.serve(next, w, r)
	})
}

// isPreflight reports whether Options.Preflight answers the request.
func (g *Guard) isPreflight(r *http.Request) bool {
	h := r.Header
	return g.options.Preflight != nil && r.Method == http.MethodOptions && len(h["Origin"]) > 0 && len(h["Access-Control-Request-Method"]) > 0
}

func (g *Guard) authenticate(x *exchange, w http.ResponseWriter, r *http.Request) (Principal, *Problem) {
	if values := r.Header["Authorization"]; len(values) > 0 {
		x.authorization = values[0]
	}
	for _, keys := range g.keys {
		if keys.Header == "" {
			continue
		}
		if values := r.Header[keys.Header]; len(values) > 0 {
			x.apiKey = values[0]
		}
	}
	x.principal = Principal{} // of an outer caller
	principal, err := g.auth.Authenticate(r)
	if err == nil && principal.known() && principal.fits(g.options.Service.Scopes) {
		x.principal = principal
		return principal, nil
	}
	refused, isProblem := errors.AsType[*Problem](err)
	broken := ""
	switch {
	case isProblem && refused != nil && refused.Status >= 400 && refused.Status <= 599:
		return Principal{}, refused
	case errors.Is(err, ErrNoCredentials):
		if unclaimed, ok := errors.AsType[*unclaimedToken](err); ok {
			return Principal{}, unclaimed.keys.failed(r, unclaimed.refused)
		}
		return Principal{}, g.missing
	case err == nil && principal.known():
		broken = "a principal of another scope registry"
	case err == nil:
		broken = "neither a principal nor an error"
	case isProblem && refused == nil:
		broken = "a nil *Problem"
	case isProblem:
		broken = fmt.Sprintf("a *Problem of status %d, which is no refusal", refused.Status)
	}
	if _, ok := errors.AsType[*keystore.GrantError](err); ok && !isProblem {
		// Not a fault: anybody with an account elsewhere may cause it.
		if unlogged, due := g.refusals.due(); due {
			g.hooks(r).logger().Info("the credentials name a caller that is not accepted",
				"error", g.secrets(x, r).Redact(fmt.Sprint(err)), "request_id", requestID(w, r), "unlogged", unlogged)
		}
		return Principal{}, refusal(codeCallerNotAccepted)
	}
	if broken != "" {
		g.faults.log(g.hooks(r), requestID(w, r), "the authenticator breaks its contract", errors.New("it returned "+broken))
		return Principal{}, refusal(codeInternal)
	}
	if unlogged, due := g.unchecked.due(); due {
		// The error may quote the credentials, such as that of a request to
		// another server with the token in its URL.
		g.hooks(r).logger().Error("the credentials of a request could not be checked",
			"error", g.secrets(x, r).Redact(fmt.Sprint(err)), "request_id", requestID(w, r), "unlogged", unlogged)
	}
	return Principal{}, refusal(codeKeyStore)
}
