package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func ExampleNew() {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	issuer := issuing.New(keys, issuing.Options{})

	// The dashboard's own sessions decide who is asking.
	admin := func(r *http.Request) (console.Actor, error) {
		session, err := r.Cookie("session")
		switch {
		case err != nil:
			return console.Actor{}, console.ErrSignedOut
		case session.Value != "ada's":
			return console.Actor{}, console.ErrNotAdmin
		}
		return console.Actor{ID: "user_ada", Organization: "org_1", Name: "Ada"}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/developer/", http.StripPrefix("/developer", console.New(issuer, admin, console.Options{})))

	for _, session := range []string{"", "max's", "ada's"} {
		r := httptest.NewRequest("GET", "/developer/", nil)
		if session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: session})
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 403
	// 200
}

// A console with the look of its dashboard, and lines that a new key can call.
func ExampleTheme() {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	admin := func(*http.Request) (console.Actor, error) {
		return console.Actor{ID: "user_ada", Organization: "org_1", Name: "Ada"}, nil
	}
	keys := console.New(issuer, admin, console.Options{
		Path: "/settings/keys",
		Theme: console.Theme{
			Title:  "Harbour",
			Logo:   "/logo.svg",
			Light:  console.Palette{Accent: "#0b6e4f"},
			Radius: "6px",
		},
		BaseURL: "https://api.harbour.example/v1",
		Samples: []console.Sample{
			{Scope: scope.TasksRead, Method: "GET", Path: "/tasks?limit=5"},
			{Scope: scope.TasksWrite, Method: "POST", Path: "/tasks", Body: `{"title": "Unload"}`},
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/settings/keys", keys)
	mux.Handle("/settings/keys/", keys)

	for _, path := range []string{"/settings/keys", "/settings/keys/new?scopes=tasks:read&expires=90"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "· Harbour</title>"))
	}
	// Output:
	// 200 true
	// 200 true
}
