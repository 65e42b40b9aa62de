package recipes

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Gin(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	guard := middleware.New(keys, options)
	engine := gin.New() // not gin.Default: its Recovery hides aborts
	engine.NoRoute(gin.WrapF(notFound))
	engine.POST("/api/v1/tasks",
		ginStage(engine, guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Idempotent), tasks.ginCreate)
	engine.GET("/api/v1/tasks/:id", ginStage(engine, guard.Enforce(middleware.Require(scope.TasksRead))), tasks.ginGet)
	return middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)(engine)
}

// ginStage makes stages a middleware of gin. Handlers inside get a writer of
// gin on top of the writer of the stages.
func ginStage(engine *gin.Engine, stages ...func(http.Handler) http.Handler) gin.HandlerFunc {
	stage := middleware.Chain(stages...)
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		passed := false
		stage(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request, c.Writer = r, gin.CreateTestContextOnly(w, engine).Writer
			c.Next()
			if c.Writer.Status() != http.StatusOK { // or the stage cannot tell that nothing was written
				c.Writer.WriteHeaderNow()
			}
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

func (t *Tasks) ginCreate(c *gin.Context) {
	var in Task
	if c.BindJSON(&in) != nil {
		return // gin has answered 400
	}
	task, err := t.create(c.Request.Context(), in.Title)
	if err != nil {
		_ = c.AbortWithError(http.StatusUnprocessableEntity, err)
		return
	}
	c.JSON(http.StatusCreated, task)
}

func (t *Tasks) ginGet(c *gin.Context) {
	c.JSON(http.StatusOK, t.get(c.Request.Context(), c.Param("id")))
}
