package bench

import (
	"errors"
	"net"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/fiber/v3/middleware/keyauth"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/requestid"
	"github.com/valyala/fasthttp"
)

// fiberServer is a Server on fasthttp, which is not net/http: it has no
// http.Handler, no HTTP/2, no context that ends with the request, and it uses
// requests and responses again. Its figures are of its own handler, called with
// a fasthttp.RequestCtx that is used again as in its server.
type fiberServer struct{ app *fiber.App }

func (f fiberServer) Loop(q Request) func(authorization, key string) int {
	h := f.app.Handler()
	ctx := new(fasthttp.RequestCtx)
	ctx.Init(new(fasthttp.Request), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil)
	ctx.Request.Header.SetMethod(q.Method)
	ctx.Request.SetRequestURI(q.Path)
	ctx.Request.Header.SetHost("example.com")
	if q.Body != "" {
		ctx.Request.Header.SetContentType("application/json")
		ctx.Request.SetBodyString(q.Body)
	}
	return func(authorization, key string) int {
		ctx.Response.Reset()
		ctx.ResetUserValues()
		if authorization != "" {
			ctx.Request.Header.Set("Authorization", authorization)
		}
		if key != "" {
			ctx.Request.Header.Set("Idempotency-Key", key)
		}
		h(ctx)
		return ctx.Response.StatusCode()
	}
}

func (f fiberServer) Serve(ln net.Listener) {
	f.app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true})
}

type fiberIdentity struct{}

func identityIn(c fiber.Ctx) *identity { return c.Locals(fiberIdentity{}).(*identity) }

func fiberNeed(scope string) fiber.Handler {
	return func(c fiber.Ctx) error {
		if !identityIn(c).may(scope) {
			return c.Status(fiber.StatusForbidden).SendString("insufficient scope")
		}
		return c.Next()
	}
}

func fiberList(c fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "application/json")
	return c.SendString(listBody)
}

func fiberPost(s *Setup) fiber.Handler {
	return func(c fiber.Ctx) error {
		s.create()
		c.Set(fiber.HeaderContentType, "application/json")
		c.Set(fiber.HeaderLocation, location)
		return c.Status(fiber.StatusCreated).SendString(createdBody)
	}
}

// newFiber is fiber v3 with its own request id, recovery, key auth, limiter and
// idempotency. The headers of a replay are listed, because without a list it
// adds the first response's id to the replay's own.
func newFiber(s *Setup) Server {
	return newFiberWith(s, []string{fiber.HeaderContentType, fiber.HeaderLocation}, func(c fiber.Ctx, err error) error {
		if errors.Is(err, keyauth.ErrMissingOrMalformedAPIKey) {
			return c.Status(fiber.StatusUnauthorized).SendString(err.Error())
		}
		return c.Status(fiber.StatusServiceUnavailable).SendString("try again")
	})
}

// newFiberDefaults leaves both to fiber.
func newFiberDefaults(s *Setup) Server { return newFiberWith(s, nil, nil) }

func newFiberWith(s *Setup, kept []string, refused fiber.ErrorHandler) Server {
	app := fiber.New()
	app.Use(requestid.New(), recover.New())
	app.Use(keyauth.New(keyauth.Config{
		Realm:        "api",
		ErrorHandler: refused,
		Validator: func(c fiber.Ctx, token string) (bool, error) {
			i, err := s.hand.find(token)
			if errors.Is(err, errNoKey) {
				return false, keyauth.ErrMissingOrMalformedAPIKey
			}
			if err != nil {
				return false, err
			}
			c.Locals(fiberIdentity{}, i)
			return true, nil
		},
	}))
	app.Use(limiter.New(limiter.Config{
		Max: s.Limit, Expiration: s.Period,
		KeyGenerator: func(c fiber.Ctx) string { return identityIn(c).org },
	}))
	app.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key", Lifetime: 24 * time.Hour,
		KeepResponseHeaders: kept}))
	app.Get("/api/v1/tasks", fiberNeed("tasks:read"), fiberList)
	app.Get("/api/v1/account", fiberNeed("account:read"), fiberList)
	app.Post("/api/v1/tasks", fiberNeed("tasks:write"), fiberPost(s))
	app.Get("/api/v1/half", fiberNeed("tasks:read"), func(c fiber.Ctx) error {
		writeHalf(c)
		return nil
	})
	return fiberServer{app}
}

func newBareFiber(s *Setup) Server {
	app := fiber.New()
	app.Get("/api/v1/tasks", fiberList)
	app.Post("/api/v1/tasks", fiberPost(s))
	return fiberServer{app}
}
