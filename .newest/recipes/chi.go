package recipes

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Chi(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	guard := middleware.New(keys, options)
	r := chi.NewRouter()
	r.Use(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)
	r.NotFound(notFound)
	r.Route("/api/v1/tasks", func(r chi.Router) {
		r.With(guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Idempotent).Post("/", tasks.Create)
		r.With(guard.Enforce(middleware.Require(scope.TasksRead))).Get("/{id}", tasks.Get)
	})
	return r
}
