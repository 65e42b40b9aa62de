package main

import (
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"net/http"

	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	consolePath = "/developer"
	signInPath  = consolePath + "/sign-in"
)

// A developer is the console behind a sign-in. In a dashboard its own sessions
// take the place of this one.
type developer struct {
	password, session string
	keys              http.Handler
}

func newConsole(issuer *issuing.Issuer, base string) *developer {
	d := &developer{password: rand.Text(), session: rand.Text()}
	d.keys = console.New(issuer, d.admin, console.Options{
		Path: consolePath, SignIn: signInPath, BaseURL: base + "/api/v1",
		Samples: []console.Sample{
			{Scope: scope.AccountRead, Method: "GET", Path: "/account"},
			{Scope: scope.TasksRead, Method: "GET", Path: "/tasks"},
		},
	})
	return d
}

// admin says who is signed in. For somebody who is no administrator a dashboard
// returns console.ErrNotAdmin.
func (d *developer) admin(r *http.Request) (console.Actor, error) {
	cookie, err := r.Cookie("session")
	if err != nil || !same(cookie.Value, d.session) {
		return console.Actor{}, console.ErrSignedOut
	}
	return console.Actor{ID: "user_ada", Organization: harbour, Name: "Ada Quay"}, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

//go:embed signin.html
var signInPage []byte

func (d *developer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != signInPath:
		d.keys.ServeHTTP(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(signInPage)
	case !same(r.PostFormValue("password"), d.password):
		http.Error(w, "This is not the password that the server has printed.", http.StatusForbidden)
	default:
		http.SetCookie(w, &http.Cookie{
			Name: "session", Value: d.session, Path: consolePath, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		http.Redirect(w, r, consolePath, http.StatusSeeOther)
	}
}
