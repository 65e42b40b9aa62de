package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
)

func ExampleNew() {
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})

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
