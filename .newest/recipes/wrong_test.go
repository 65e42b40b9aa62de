package recipes

import (
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gin-gonic/gin"
	ginadapter "github.com/gwatts/gin-adapter"
	echo4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

type stage = func(http.Handler) http.Handler

// TestWrongAdapters holds the page to what it says of shorter adapters: a
// create that the router refuses with 422 gets another answer, now or when it
// is repeated, and the log says why.
func TestWrongAdapters(t *testing.T) {
	onGin := func(adapt func(stage) gin.HandlerFunc) func(decision, idempotent stage, tasks *Tasks) http.Handler {
		return func(decision, idempotent stage, tasks *Tasks) http.Handler {
			engine := gin.New()
			engine.POST(tasksPath, adapt(decision), adapt(idempotent), tasks.ginCreate)
			return engine
		}
	}
	for _, tt := range []struct {
		name         string
		router       func(decision, idempotent stage, tasks *Tasks) http.Handler
		first, again int
		log          string
	}{
		{"echo.WrapMiddleware", func(decision, idempotent stage, tasks *Tasks) http.Handler {
			e := echo.New()
			e.POST(tasksPath, tasks.echoCreate, echo.WrapMiddleware(decision), echo.WrapMiddleware(idempotent))
			return e
		}, 200, 409, "written after the Idempotent stage had ended"},
		{"echo.WrapMiddleware of v4", func(decision, idempotent stage, tasks *Tasks) http.Handler {
			e := echo4.New()
			e.POST(tasksPath, tasks.echo4Create, echo4.WrapMiddleware(decision), echo4.WrapMiddleware(idempotent))
			return e
		}, 200, 409, "written after the Idempotent stage had ended"},
		{"gin, errors answered outside", func(decision, idempotent stage, tasks *Tasks) http.Handler {
			engine := gin.New()
			engine.Use(func(c *gin.Context) {
				if c.Next(); len(c.Errors) > 0 {
					c.JSON(422, c.Errors.JSON())
				}
			})
			engine.POST(tasksPath, ginStage(engine, decision, idempotent), func(c *gin.Context) { _ = c.Error(errTitle) })
			return engine
		}, 200, 409, "written after the Idempotent stage had ended"},
		{"gin, without the writer", onGin(func(s stage) gin.HandlerFunc {
			return func(c *gin.Context) {
				s(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.Request = r; c.Next() })).ServeHTTP(c.Writer,
					c.Request)
				c.Abort()
			}
		}), 422, 409, "sent past the Idempotent stage"},
		{"gin, without the request", onGin(func(s stage) gin.HandlerFunc {
			return func(c *gin.Context) {
				s(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
				c.Abort()
			}
		}), 500, 500, "Idempotent has no Enforce before it"},
		{"gwatts/gin-adapter", func(decision, idempotent stage, tasks *Tasks) http.Handler {
			engine := gin.New()
			engine.POST(tasksPath, ginadapter.Wrap(middleware.Chain(decision, idempotent)), tasks.ginCreate)
			return engine
		}, 200, 409, "sent past the Idempotent stage"},
		{"huma.WithContext", func(decision, idempotent stage, tasks *Tasks) http.Handler {
			mux := http.NewServeMux()
			api := humago.New(mux, huma.DefaultConfig("Tasks", "1"))
			api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
				r, w := humago.Unwrap(ctx)
				decision(idempotent(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					next(huma.WithContext(ctx, r.Context()))
				}))).ServeHTTP(w, r)
			})
			huma.Register(api, huma.Operation{Method: "POST", Path: tasksPath, OperationID: "create-task"}, tasks.humaCreate)
			return mux
		}, 400, 409, "sent past the Idempotent stage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, func(keys keystore.Store, o middleware.Options, tasks *Tasks) http.Handler {
				g := middleware.New(keys, o)
				router := tt.router(g.Enforce(middleware.AnyCaller()), g.Idempotent, tasks)
				return middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(router)
			})
			for _, want := range []int{tt.first, tt.again} {
				if a := s.send("POST "+tasksPath, s.full, `{"title":""}`, "Idempotency-Key", "a"); a.status != want {
					t.Errorf("got %d %s, want %d", a.status, a.body, want)
				}
			}
			if log := s.log.String(); !strings.Contains(log, tt.log) {
				t.Errorf("got the log %q, want %q in it", log, tt.log)
			}
		})
	}
}
