package recipes

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func GinWrap(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	api := middleware.NewAPI(keys, options)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), tasks.Create)
	api.HandleFunc("GET /api/v1/tasks/{id}", middleware.Require(scope.TasksRead), tasks.Get)

	engine := gin.New() // not gin.Default: its Recovery hides aborts
	engine.Any("/api/v1/*path", gin.WrapH(api))
	return middleware.New(nil, options).RequestID(engine) // for the answers of gin itself
}
