package recipes

import (
	"net/http"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewaretest"
	"github.com/sallyport-go/sallyport/scope"
)

// TestWalk: a service finds the routes that its routers have and that ask for
// no scope.
func TestWalk(t *testing.T) {
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(),
		keystore.Key{Organization: "org_1", Environment: keystore.Production, Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	guard, tasks := middleware.New(keys, middleware.Options{}), new(Tasks)
	create := guard.Enforce(middleware.Require(scope.TasksWrite))(http.HandlerFunc(tasks.Create))
	get := guard.Enforce(middleware.Require(scope.TasksRead))(http.HandlerFunc(tasks.Get))

	onChi := chi.NewRouter()
	onChi.Use(guard.RequestID, guard.Authenticate)
	onChi.Method("POST", "/tasks", create)
	onChi.Method("GET", "/tasks/{id:[0-9]+}", get)
	onChi.Delete("/tasks/{id}", tasks.Get) // without Enforce

	onGorilla := mux.NewRouter()
	onGorilla.Use(guard.RequestID, guard.Authenticate)
	onGorilla.Handle("/tasks", create).Methods("POST")
	onGorilla.Handle("/tasks/{id:[0-9]+}", get).Methods("GET")
	onGorilla.HandleFunc("/tasks/{id}", tasks.Get).Methods("DELETE")

	var ofChi, ofGorilla []string
	err = chi.Walk(onChi, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		ofChi = append(ofChi, method+" "+path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = onGorilla.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, _ := route.GetPathTemplate()
		methods, err := route.GetMethods() // an error: the route takes all
		for _, method := range methods {
			ofGorilla = append(ofGorilla, method+" "+path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ofChi) != 3 || len(ofGorilla) != 3 {
		t.Fatalf("got the routes %q and %q, want 3 each", ofChi, ofGorilla)
	}

	// A ServeMux lists no routes: the table that registers them does.
	table := map[string]http.Handler{
		"POST /tasks": create, "GET /tasks/{id}": get, "DELETE /tasks/{id}": http.HandlerFunc(tasks.Get),
	}
	onMux, ofMux := http.NewServeMux(), []string(nil)
	for pattern, h := range table {
		onMux.Handle(pattern, h)
		ofMux = append(ofMux, pattern)
	}

	for name, router := range map[string]struct {
		h      http.Handler
		routes []string
	}{
		"chi": {onChi, ofChi}, "gorilla": {onGorilla, ofGorilla},
		"ServeMux": {middleware.Chain(guard.RequestID, guard.Authenticate)(onMux), ofMux},
	} {
		open := middlewaretest.OpenRoutes(router.h, secret.Reveal(), router.routes...)
		if want := []string{"DELETE /tasks/{id}: 500"}; !slices.Equal(open, want) {
			t.Errorf("%s: got %q, want %q", name, open, want)
		}
	}
}
