package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/scope"
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

// What [FirstOf] does with a request that carries credentials of several kinds.
const (
	RefuseSeveral = true  // 400, because two parties may believe different ones
	IgnoreSeveral = false // it does not look at credentials after the first
)

// FirstOf joins authenticators: the first whose answer is not
// [ErrNoCredentials] decides. So a revoked API key is refused, even beside a
// valid session. refuseSeveral is [RefuseSeveral] or [IgnoreSeveral].
//
// A [KeyAuthenticator] that is joined leaves Bearer tokens of another shape,
// such as JWTs, to the others. One that nobody takes is refused as an invalid
// key. Two of them need different prefixes: each refuses tokens of its own
// shape that its store does not have. An Authenticator around a
// KeyAuthenticator hides it, so that it refuses JWTs too: put it around what
// FirstOf returns.
//
// FirstOf panics without authenticators and on a nil one.
func FirstOf(refuseSeveral bool, authenticators ...Authenticator) Authenticator {
	j := &joined{exclusive: refuseSeveral}
	if len(authenticators) == 0 {
		panic("middleware: FirstOf: there is no authenticator")
	}
	for _, a := range authenticators {
		if absent(a) {
			panic("middleware: FirstOf: an authenticator is nil")
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

type joined struct {
	authenticators []Authenticator
	exclusive      bool // refuse several kinds of credentials
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
					return Principal{}, refusal(codes.SeveralCredentials)
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

// authentication finds out who calls.
type authentication struct {
	Authenticator
	keys      []*keyAuthenticator // of it
	registry  *scope.Registry
	preflight http.Handler
	missing   *Problem // for a request without credentials
	report    *reporter
}

func newAuthentication(
	a Authenticator, r *scope.Registry, realm string, preflight http.Handler, report *reporter,
) *authentication {
	missing := refusal(codes.APIKeyMissing)
	missing.Challenge = `Bearer realm="` + realm + `"`
	return &authentication{
		Authenticator: a,
		keys:          keyAuthenticators(a),
		registry:      r,
		preflight:     preflight,
		missing:       missing,
		report:        report,
	}
}

// isPreflight reports whether Options.Preflight answers the request.
func (a *authentication) isPreflight(r *http.Request) bool {
	h := r.Header
	return a.preflight != nil && r.Method == http.MethodOptions &&
		len(h["Origin"]) > 0 && len(h["Access-Control-Request-Method"]) > 0
}

// check returns the caller, or the refusal of a request that is answered by x.
func (a *authentication) check(x *exchange, w http.ResponseWriter, r *http.Request) (Principal, *Problem) {
	if values := r.Header["Authorization"]; len(values) > 0 {
		x.authorization = values[0]
	}
	for _, keys := range a.keys {
		if keys.Header == "" {
			continue
		}
		if values := r.Header[keys.Header]; len(values) > 0 {
			x.apiKey = values[0]
		}
	}
	principal, err := a.Authenticate(r)
	if err == nil && principal.known() && principal.fits(a.registry) {
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
		return Principal{}, a.missing
	case err == nil && principal.known():
		broken = "a principal of another scope registry"
	case err == nil:
		broken = "neither a principal nor an error"
	case isProblem && refused == nil:
		broken = "a nil *Problem"
	case isProblem:
		broken = fmt.Sprintf("a *Problem of status %d, which is no refusal", refused.Status)
	}
	if broken != "" {
		a.report.fault(w, r, "the authenticator breaks its contract", errors.New("it returned "+broken))
		return Principal{}, refusal(codes.Internal)
	}
	if _, ok := errors.AsType[*keystore.GrantError](err); ok {
		// Not a fault: anybody with an account elsewhere may cause it.
		a.report.sampled(w, r, slog.LevelInfo, "the credentials name a caller that is not accepted", err)
		return Principal{}, refusal(codes.CallerNotAccepted)
	}
	a.report.fault(w, r, "the credentials of a request could not be checked", err)
	return Principal{}, refusal(codes.KeyStore)
}
