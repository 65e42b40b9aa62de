package middleware

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// GatewayOptions configure [Guard.Gateway]. Requirements and Secrets are
// required.
type GatewayOptions struct {
	// The proxy calls below Path; "" means "/verify".
	Path string

	// Requirements are what the configuration of the proxy may ask for, each by a
	// name of letters, digits, ".", "_" and "-", which is the path segment after
	// Path.
	Requirements map[string]Requirement

	// Secrets are shared with the services, of at least 32 bytes each. The first
	// one signs. To replace it, give the services both, then the Gateway the new
	// one, then the services the new one alone.
	Secrets [][]byte

	// Lifetime is how long the signature of a request is valid; 0 means 10 s. The
	// clocks of Gateway and services must agree better than that.
	Lifetime time.Duration

	// AuthRequest is for nginx, whose auth_request knows refusals of 401 and 403
	// alone: any other is sent as 403. The fields Svc-Refusal-Status and
	// Svc-Refusal-Body of a refusal have what the client is to get; a body of more
	// than 2,048 bytes is left out.
	AuthRequest bool
}

const (
	callerPrefix    = "Svc-Caller-"
	callerScopes    = callerPrefix + "Scopes"
	callerSignature = callerPrefix + "Signature"
)

// callerFields are those that a Gateway sets when a request may pass, in the
// order in which they are signed.
var callerFields = [...]string{
	callerPrefix + "Request", callerPrefix + "Organization", callerPrefix + "Environment", callerPrefix + "Key",
	callerPrefix + "Subject", callerScopes,
}

// Gateway returns a handler that tells a proxy whether a request may pass: for
// auth_request of nginx, forward_auth of Caddy, ForwardAuth of Traefik and the
// HTTP service of Envoy's ext_authz. It runs RequestID, Recover, Authenticate,
// RateLimit and Enforce, once for each request of a client.
//
// The proxy calls Path/NAME, where NAME is one of Requirements, with the
// client's header. What follows in the path does not matter: Envoy appends the
// client's. Give the handler a server of its own: a ServeMux would redirect such
// a path. A name that is not known is answered with 500.
//
//   - 200: the request may pass. Svc-Caller-Organization, -Environment, -Key,
//     -Subject, -Scopes and -Request say who calls, percent-encoded; each is set,
//     also when it is empty, and the proxy MUST replace those of the client by
//     them. Svc-Caller-Signature covers them, the method and the path.
//   - Anything else is the response for the client: 400, 401, 403, 429, 500 or 503.
//
// The signature is EXPIRES "." HEX: Unix seconds, and the HMAC-SHA256 under the
// first secret of these lines, joined by "\n": EXPIRES, the method, the path with
// the query, and the six fields in the order -Request, -Organization,
// -Environment, -Key, -Subject, -Scopes. Method and path are X-Forwarded-Method
// and X-Forwarded-Uri, or without these fields those of the request itself
// without Path and NAME. Forging them is useless: the service refuses the
// signature. The body is not signed.
//
// The client's address must come in X-Forwarded-For from one of
// Options.TrustedProxies: else all clients would share one address, and every
// request is refused with 500. Gateway panics on options that are wrong, and on a
// Guard that is ReportOnly, has RateLimit.Concurrent or authenticates nobody.
func (g *Guard) Gateway(o GatewayOptions) http.Handler {
	o.Path = strings.TrimSuffix(cmp.Or(o.Path, "/verify"), "/")
	o.Lifetime = cmp.Or(o.Lifetime, 10*time.Second)
	if err := o.validate(); err != nil {
		panic("middleware: Gateway: " + err.Error())
	}
	if g.options.ReportOnly {
		panic("middleware: Gateway: the Guard is ReportOnly, and a proxy lets pass what is not refused")
	}
	if g.options.RateLimit.Concurrent > 0 {
		panic("middleware: Gateway: RateLimit.Concurrent counts requests in progress, and of those here only the proxy's " +
			"question is: set it in the service")
	}
	g.noIdempotent.Store(false) // an Idempotency-Key is the service's
	routes := make(map[string]http.Handler, len(o.Requirements))
	for name, need := range o.Requirements {
		routes[name] = Chain(g.Authenticate, g.RateLimit, g.Enforce(need))(http.HandlerFunc(o.admit))
	}
	verify := Chain(g.RequestID, g.Recover)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := o.name(r)
		switch route := routes[name]; {
		case route == nil:
			g.report.misuse(w, r, StageRoute, "Gateway: the proxy asks for "+strconv.Quote(g.report.redact(name))+
				", which is none of Requirements")
		case !g.report.proxies.forwarded(r):
			g.report.misuse(w, r, StageRoute, "Gateway: the request has no X-Forwarded-For of one of Options.TrustedProxies, "+
				"so all clients would count as one")
		default:
			r = r.WithContext(r.Context())
			r.Pattern = o.Path + "/" + name
			recordOf(w).match(r.Pattern) // also of a refusal
			route.ServeHTTP(w, r)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &verdict{header: make(http.Header)}
		verify.ServeHTTP(v, r)
		v.send(w, o.AuthRequest)
	})
}

func (o GatewayOptions) validate() error {
	var m mistakes
	m.when(!strings.HasPrefix(o.Path, "/"), "the path %q does not begin with a slash", o.Path)
	m.when(len(o.Requirements) == 0, "there are no Requirements")
	for name := range o.Requirements {
		m.when(!isWord(name, "._-"), "the requirement %q has no name of letters, digits, dots, _ and -", name)
	}
	m.when(o.Lifetime < time.Second, "the Lifetime is less than a second")
	return errors.Join(append(m, validSecrets(o.Secrets))...)
}

func validSecrets(secrets [][]byte) error {
	if len(secrets) == 0 || slices.ContainsFunc(secrets, func(s []byte) bool { return len(s) < sha256.Size }) {
		return errors.New("it needs secrets of at least 32 bytes, such as of openssl rand 32")
	}
	return nil
}

// name returns the segment after Path as it was sent, or "".
func (o GatewayOptions) name(r *http.Request) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), o.Path+"/"), "/")
	return name
}

// asked returns the method and the path of the request that the proxy asks for.
func (o GatewayOptions) asked(r *http.Request) (method, uri string) {
	method, uri = r.Method, strings.TrimPrefix(r.RequestURI, o.Path+"/"+o.name(r)) // r.URL would encode it anew
	if values := r.Header["X-Forwarded-Method"]; len(values) > 0 {
		method = values[0]
	}
	if values := r.Header["X-Forwarded-Uri"]; len(values) > 0 {
		uri = values[0]
	}
	return method, uri
}

// admit answers a request that may pass.
func (o GatewayOptions) admit(w http.ResponseWriter, r *http.Request) {
	c, h := CallerFrom(r.Context()), w.Header()
	for i, value := range [len(callerFields)]string{
		exchangeOf(w).idOf(r), url.PathEscape(c.Organization()), url.PathEscape(string(c.Environment())),
		url.PathEscape(c.KeyID()), url.PathEscape(c.Subject()), escapeNames(c.Scopes()),
	} {
		h[callerFields[i]] = []string{value}
	}
	expires := strconv.FormatInt(time.Now().Add(o.Lifetime).Unix(), 10)
	method, uri := o.asked(r)
	h.Set(callerSignature, expires+"."+hex.EncodeToString(signCaller(o.Secrets[0], expires, method, uri, h)))
	w.WriteHeader(http.StatusOK) // Envoy takes no other
}

// escapeNames joins scopes. Those of a key that was stored elsewhere may have any
// bytes, a space among them.
func escapeNames(names []scope.Name) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = url.PathEscape(string(name))
	}
	return strings.Join(texts, " ")
}

// signCaller returns the HMAC of the fields of a caller.
func signCaller(secret []byte, expires, method, uri string, h http.Header) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(expires + "\n" + method + "\n" + uri))
	for _, name := range callerFields {
		mac.Write([]byte("\n" + firstValue(h[name])))
	}
	return mac.Sum(nil)
}

// A verdict is the response to a proxy, held back until it is whole.
type verdict struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(p []byte) (int, error) { return v.body.Write(p) }
func (v *verdict) WriteHeader(status int)      { v.status = status }

// send sends the verdict; for auth_request a refusal travels in two fields too.
func (v *verdict) send(w http.ResponseWriter, authRequest bool) {
	v.header.Set("Cache-Control", "no-store")
	if authRequest && v.status >= http.StatusBadRequest {
		v.header.Set("Svc-Refusal-Status", strconv.Itoa(v.status))
		v.header.Set("Svc-Refusal-Body", strings.TrimSpace(v.body.String()))
		if v.body.Len() > 2048 {
			v.header.Set("Svc-Refusal-Body", "")
		}
		if v.status != http.StatusUnauthorized {
			v.status = http.StatusForbidden
		}
	}
	maps.Copy(w.Header(), v.header)
	w.WriteHeader(v.status)
	_, _ = v.body.WriteTo(w)
}

// FromGateway returns the [Options].Authenticate of a service behind a
// [Guard.Gateway]: it takes the caller from the fields that the Gateway has
// signed for this request. The service needs no key store; Enforce, Idempotent
// and [CallerFrom] work as with one. The registry is that of the service; nil
// means [scope.Default]. Scopes that it does not know grant nothing. Attributes,
// networks and the parent of the key stay with the Gateway: a limit of each key
// belongs there, since a child would have one of its own here. Any of the secrets
// may have signed. FromGateway panics without one of at least 32 bytes.
//
// A request is refused with 401 if the fields are missing, sent twice or in a
// spelling with "_", altered, expired, or signed for another method or path. The
// log says which.
func FromGateway(registry *scope.Registry, secrets ...[]byte) func(*http.Request) (*keystore.Caller, error) {
	if err := validSecrets(secrets); err != nil {
		panic("middleware: FromGateway: " + err.Error())
	}
	return func(r *http.Request) (*keystore.Caller, error) {
		if unsigned, wrong := wrongSignature(r, secrets); wrong != "" {
			refused := invalidKey("The request did not come through the gateway of this service.")
			refused.log = fmt.Errorf("%s %s: %s", r.Method, r.URL.Path, wrong)
			if unsigned {
				return nil, fmt.Errorf("%w: %w", ErrNoCredentials, refused)
			}
			return nil, refused
		}
		var id [4]string // organization, environment, key and subject
		for i, name := range callerFields[1:5] {
			id[i], _ = url.PathUnescape(firstValue(r.Header[name])) // it is signed, so it was escaped
		}
		k := &keystore.Key{Organization: id[0], Environment: keystore.Environment(id[1]), ID: cmp.Or(id[2], id[3])}
		for escaped := range strings.FieldsSeq(firstValue(r.Header[callerScopes])) {
			name, _ := url.PathUnescape(escaped)
			k.Scopes = append(k.Scopes, scope.Name(name))
		}
		if id[2] != "" {
			k.Digest[0] = 1 // the caller has a key
		}
		return k.Bind(registry), nil
	}
}

// wrongSignature says why a request was not signed by a Gateway, or "", and
// whether it has none of the fields.
func wrongSignature(r *http.Request, secrets [][]byte) (unsigned bool, wrong string) {
	unsigned = true
	for name, values := range r.Header {
		field := strings.ReplaceAll(name, "_", "-")
		if len(field) < len(callerPrefix) || !strings.EqualFold(field[:len(callerPrefix)], callerPrefix) {
			continue
		}
		unsigned = false
		if field != name {
			return false, "it has the field " + name + ": let the proxy remove it"
		}
		if len(values) > 1 {
			return false, "it has the field " + name + " twice: let the proxy replace it"
		}
	}
	expires, signature, found := strings.Cut(firstValue(r.Header[callerSignature]), ".")
	if !found {
		return unsigned, "it has no signature of a Gateway"
	}
	sent, err := hex.DecodeString(signature)
	signed := err == nil && slices.ContainsFunc(secrets, func(secret []byte) bool {
		return hmac.Equal(sent, signCaller(secret, expires, r.Method, r.RequestURI, r.Header))
	})
	if !signed {
		return false, "its signature is of another method, path, caller or secret"
	}
	if at, err := strconv.ParseInt(expires, 10, 64); err != nil || time.Now().Unix() > at {
		return false, "its signature has expired"
	}
	return false, ""
}
