package recipes

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Echo4(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	guard := middleware.New(keys, options)
	e := echo.New()
	e.RouteNotFound("/*", echo.WrapHandler(http.HandlerFunc(notFound)))
	e.POST("/api/v1/tasks", tasks.echo4Create,
		echo4Stage(guard.Enforce(middleware.Require(scope.TasksWrite))), echo4Stage(guard.Idempotent))
	e.GET("/api/v1/tasks/:id", tasks.echo4Get, echo4Stage(guard.Enforce(middleware.Require(scope.TasksRead))))
	return middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)(e)
}

// echo4Stage is echo.WrapMiddleware, but errors are answered inside the stage.
func echo4Stage(stage func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Pattern = c.Path()
			stage(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(c.Response(), c.Request())
			return nil
		}
	}
}

func (t *Tasks) echo4Create(c echo.Context) error {
	var in Task
	if err := c.Bind(&in); err != nil {
		return err
	}
	task, err := t.create(c.Request().Context(), in.Title)
	if err != nil {
		return echo.NewHTTPError(http.StatusUnprocessableEntity, err.Error())
	}
	return c.JSON(http.StatusCreated, task)
}

func (t *Tasks) echo4Get(c echo.Context) error {
	return c.JSON(http.StatusOK, t.get(c.Request().Context(), c.Param("id")))
}
