package recipes

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Gzip(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	api := middleware.NewAPI(keys, options)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), tasks.Create)
	api.HandleFunc("GET /api/v1/tasks/{id}", middleware.Require(scope.TasksRead), tasks.Get)
	gzip, err := gzhttp.NewWrapper(gzhttp.MinSize(64))
	if err != nil {
		panic(err)
	}
	guard := middleware.New(nil, options)
	return guard.RequestID(gzip(api))
}
