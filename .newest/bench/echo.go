package bench

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
)

func echoIdentity(c *echo.Context) *identity { return c.Get("identity").(*identity) }

func echoNeed(scope string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if !echoIdentity(c).may(scope) {
				return echo.ErrForbidden
			}
			return next(c)
		}
	}
}

// newEcho is echo with its own request id, recovery, key auth and rate limiter.
// Its limiter forgets whoever was silent for ExpiresIn, so that is twice the
// period. Echo has no idempotency. The refusals are those of its error handler.
func newEcho(s *Setup) Server {
	return echoServer(s, func(c *echo.Context, err error) error {
		switch {
		case errors.Is(err, errDown):
			return echo.ErrServiceUnavailable
		case errors.Is(err, middleware.ErrInvalidKey):
			return middleware.ErrInvalidKey
		default:
			return middleware.ErrKeyMissing
		}
	})
}

// newEchoDefaults leaves the errors of the validator to echo.
func newEchoDefaults(s *Setup) Server { return echoServer(s, nil) }

func echoServer(s *Setup, refused middleware.KeyAuthErrorHandler) Server {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.RequestID(), middleware.Recover())
	e.Use(middleware.KeyAuthWithConfig(middleware.KeyAuthConfig{
		Validator: func(c *echo.Context, token string, _ middleware.ExtractorSource) (bool, error) {
			i, err := s.hand.find(token)
			if errors.Is(err, errNoKey) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			c.Set("identity", i)
			return true, nil
		},
		ErrorHandler: refused,
	}))
	e.Use(middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
		Store: middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
			Rate: float64(s.Limit) / s.Period.Seconds(), Burst: s.Limit, ExpiresIn: 2 * s.Period,
		}),
		IdentifierExtractor: func(c *echo.Context) (string, error) { return echoIdentity(c).org, nil },
	}))
	list := func(c *echo.Context) error { return c.Blob(http.StatusOK, "application/json", []byte(listBody)) }
	e.GET("/api/v1/tasks", list, echoNeed("tasks:read"))
	e.GET("/api/v1/account", list, echoNeed("account:read"))
	e.POST("/api/v1/tasks", func(c *echo.Context) error {
		s.create()
		c.Response().Header().Set("Location", location)
		return c.Blob(http.StatusCreated, "application/json", []byte(createdBody))
	}, echoNeed("tasks:write"))
	e.GET("/api/v1/half", func(c *echo.Context) error {
		writeHalf(c.Response())
		return nil
	}, echoNeed("tasks:read"))
	return netHTTP{e}
}
