package console

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// New returns the console of an issuer's keys. It serves the root of whatever
// it is mounted at, so a prefix is taken off with [http.StripPrefix], or named
// in [Options.Path].
//
// admin says for each request which administrator makes it, or returns
// [ErrSignedOut] or [ErrNotAdmin]. It has to rely on what a browser does not
// send along from other sites, such as a cookie with SameSite=Lax or Strict.
//
// New panics when issuer or admin is nil, or an option makes no sense.
func New(issuer *issuing.Issuer, admin func(*http.Request) (Actor, error), o Options) http.Handler {
	if issuer == nil || admin == nil {
		panic("console: New needs an issuer and an admin function")
	}
	o.check(issuer)
	if o.Presets == nil {
		o.Presets = DefaultPresets()
	}
	if o.Samples == nil && o.BaseURL != "" && issuer.Service().Scopes.Known(scope.AccountRead) {
		o.Samples = []Sample{{Scope: scope.AccountRead, Method: http.MethodGet, Path: "/account"}}
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	l := o.Theme.look()
	return &console{issuer: issuer, registry: issuer.Service().Scopes, admin: admin, options: o, look: l,
		csp: "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " + l.sources +
			"form-action 'self'; base-uri 'none'; frame-ancestors " + o.frameAncestors()}
}

func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{console: c, w: w, r: r, names: make(map[string]string), below: make(map[string]int)}
	c.setHeaders(w.Header())
	at := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(at, c.options.Path); ok && (rest == "" || rest[0] == '/') {
		at = rest
	}
	if at == "" && c.options.Path == "" && x.addSlash() {
		return
	}
	at = strings.TrimPrefix(at, "/")
	x.root = cmp.Or(strings.Repeat("../", strings.Count(at, "/")), "./")
	if c.options.Path != "" {
		x.root = c.options.Path + "/"
	}
	if x.asset(at) {
		return
	}
	if err := x.serve(at); err != nil {
		x.refuse(err)
	}
}

func (x *exchange) serve(at string) error {
	if err := x.origins.Check(x.r); err != nil {
		return &failure{status: http.StatusForbidden, title: "Refused", detail: "This request comes from another " +
			"site, or the browser does not say where it comes from. Use the console's own pages, over HTTPS."}
	}
	switch actor, err := x.admin(x.r); {
	case errors.Is(err, ErrSignedOut):
		return ErrSignedOut
	case errors.Is(err, ErrNotAdmin):
		return ErrNotAdmin
	case err != nil:
		return &failure{status: http.StatusServiceUnavailable, code: "sign_in_unavailable", cause: err}
	case actor.ID == "" || actor.Organization == "" || len(actor.ID) > longest || len(actor.Organization) > longest:
		return &failure{status: http.StatusInternalServerError, code: "internal",
			cause: errors.New("console: the admin function returned an actor whose ID or Organization is empty or too long")}
	default:
		actor.Name = cmp.Or(actor.Name, actor.ID)
		x.actor, x.by, x.names[actor.ID] = actor, x.issuer.By(actor.ID, ""), actor.Name
	}
	if x.actor.ReadOnly && x.r.Method == http.MethodPost {
		return errReadOnly
	}
	return x.route(at)
}

// route finds what a path and method mean. It is not a ServeMux, whose
// redirects would lead out of the prefix that the console is mounted under.
func (x *exchange) route(at string) error {
	switch at {
	case "":
		return x.methods(x.list, nil)
	case "new":
		return x.methods(x.createForm, x.create)
	case "audit":
		return x.methods(x.audit, nil)
	}
	pages := map[string]struct{ get, post func(*keystore.Key) error }{
		"":         {x.show, nil},
		"/used":    {x.used, nil},
		"/rotate":  {x.rotateForm, x.rotate},
		"/edit":    {x.editForm, x.edit},
		"/revoke":  {x.revokeForm, x.revoke},
		"/suspend": {x.suspendForm, x.suspend},
		"/resume":  {x.show, x.resume},
		"/narrow":  {x.show, x.narrow},
	}
	escaped, _, _ := strings.Cut(at, "/")
	p, known := pages[at[len(escaped):]]
	id, _ := url.PathUnescape(escaped) // what an URL escapes itself can be unescaped
	if id == "" || !known {
		return keystore.ErrNotFound
	}
	k, err := x.issuer.Key(x.r.Context(), x.actor.Organization, id)
	if err != nil {
		return err
	}
	if p.post == nil {
		return x.methods(func() error { return p.get(k) }, nil)
	}
	return x.methods(func() error { return p.get(k) }, func() error { return p.post(k) })
}

// methods calls what a method means. A page that takes a form is for those who
// may send it.
func (x *exchange) methods(get, post func() error) error {
	switch {
	case x.actor.ReadOnly && post != nil:
		return errReadOnly
	case x.r.Method == http.MethodGet || x.r.Method == http.MethodHead:
		return get()
	case x.r.Method == http.MethodPost && post != nil:
		return post()
	}
	allow := "GET, HEAD"
	if post != nil {
		allow += ", POST"
	}
	x.w.Header().Set("Allow", allow)
	return &failure{status: http.StatusMethodNotAllowed, title: "Not possible",
		detail: "This address does not know the method " + x.r.Method + "."}
}

// addSlash redirects from the prefix itself to the console's root, without
// which relative links would lead astray.
func (x *exchange) addSlash() bool {
	address, _, _ := strings.Cut(x.r.RequestURI, "?")
	last := path.Base(address)
	if !strings.HasPrefix(address, "/") || strings.HasSuffix(address, "/") {
		return false
	}
	x.w.Header().Set("Location", "./"+last+"/")
	x.w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}
