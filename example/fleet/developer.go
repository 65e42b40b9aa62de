package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	developerPath = "/developer/"
	signInPath    = developerPath + "sign-in"
	sessionCookie = "sallyport_demo"
)

// A person is somebody whom the demo lets one sign in as.
type person struct {
	console.Actor
	Administrator bool
}

var people = []person{
	{console.Actor{ID: "user_ada", Organization: harbour, Name: "Ada Quay"}, true},
	{console.Actor{ID: "user_max", Organization: harbour, Name: "Max Moor"}, false},
}

// developer is the Developer section behind a sign-in that asks for no
// password. There is one session a person, made up anew by each start: a cookie
// that holds it shows nothing but that its owner has pressed the button.
type developer struct {
	sessions map[string]person
	origins  http.CrossOriginProtection
}

// newDeveloper returns the console of the issuer's keys, for the paths under
// developerPath.
func newDeveloper(issuer *issuing.Issuer, baseURL string, logger *slog.Logger) http.Handler {
	d := &developer{sessions: make(map[string]person)}
	names := map[string]string{starter: "the example"}
	for _, p := range people {
		d.sessions[rand.Text()] = p
		names[p.ID] = p.Name
	}
	keys := console.New(issuer, d.admin, console.Options{
		SignIn:  signInPath,
		BaseURL: baseURL + basePath,
		Samples: []console.Sample{
			{Scope: scope.AccountRead, Method: "GET", Path: "/account"},
			{Scope: scope.TasksRead, Method: "GET", Path: "/tasks"},
			{Scope: scope.TasksWrite, Method: "POST", Path: "/tasks", Body: `{"title": "Repaint the harbour's crane"}`},
		},
		PersonName: func(_ context.Context, _, id string) string { return names[id] },
		Logger:     logger,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+signInPath, d.signInPage)
	mux.HandleFunc("POST "+signInPath, d.signIn)
	mux.Handle(developerPath, http.StripPrefix(strings.TrimSuffix(developerPath, "/"), keys))
	return mux
}

// admin is what a dashboard writes against its own sessions.
func (d *developer) admin(r *http.Request) (console.Actor, error) {
	p, ok := d.signedIn(r)
	switch {
	case !ok:
		return console.Actor{}, console.ErrSignedOut
	case !p.Administrator:
		return console.Actor{}, console.ErrNotAdmin
	}
	return p.Actor, nil
}

func (d *developer) signedIn(r *http.Request) (person, bool) {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return person{}, false
	}
	p, ok := d.sessions[c.Value]
	return p, ok
}

var (
	//go:embed signin.html
	signInText     string
	signInTemplate = template.Must(template.New("").Parse(signInText))
)

func (d *developer) signInPage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	who, _ := d.signedIn(r)
	_ = signInTemplate.Execute(w, map[string]any{"People": people, "Who": who})
}

// signIn starts the session of whoever the form names, and ends any when it
// names nobody.
func (d *developer) signIn(w http.ResponseWriter, r *http.Request) {
	if err := d.origins.Check(r); err != nil {
		http.Error(w, "Another site may not sign anybody in here.", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	id := r.PostFormValue("as")
	cookie := http.Cookie{Name: sessionCookie, Path: developerPath, MaxAge: -1, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
	to := signInPath
	for session, p := range d.sessions {
		if p.ID == id {
			cookie.Value, cookie.MaxAge, to = session, 0, developerPath
		}
	}
	http.SetCookie(w, &cookie)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// onLoopback refuses requests whose Host is not this machine's own. A page of
// any site can have its name resolve to 127.0.0.1, and would then be of the
// same origin as the console.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		addr, err := netip.ParseAddr(host)
		if !strings.EqualFold(host, "localhost") && (err != nil || !addr.Unmap().IsLoopback()) {
			http.Error(w, "The demo console answers to localhost and 127.0.0.1 only.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
