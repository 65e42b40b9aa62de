package kitservers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v5"
)

// Echo has a sliding log that counts refusals too, ids in a row, a list that
// holds only ids, and keys that have to be of at most 64 characters.
func Echo() http.Handler {
	t := newTasks()
	limit := &log{limit: 40, length: time.Second, times: make(map[string][]time.Time)}
	var last atomic.Int64
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set("Svc-Request-Id", fmt.Sprintf("r-%d", last.Add(1)))
			return next(c)
		}
	}, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if !strings.HasPrefix(c.Request().URL.Path, "/api/v1") {
				return next(c)
			}
			who, status := authenticate(c.Request().Header)
			if status != 0 {
				return echo.NewHTTPError(status, "unauthorized")
			}
			if wait := limit.admit(who.org); wait > 0 {
				c.Response().Header().Set("Retry-After", retryAfter(wait))
				return echo.NewHTTPError(429, "slow down")
			}
			c.Set("caller", who)
			return next(c)
		}
	})
	scope := func(name string) echo.MiddlewareFunc {
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				if !c.Get("caller").(caller).may(name) {
					return echo.NewHTTPError(403, "forbidden")
				}
				return next(c)
			}
		}
	}
	e.GET("/api/v1/account", func(c *echo.Context) error {
		return c.JSON(200, map[string]any{"organization": map[string]string{"id": c.Get("caller").(caller).org}})
	}, scope("account:read"))
	e.GET("/api/v1/tasks", func(c *echo.Context) error {
		var ids []string
		for _, task := range t.list(c.Get("caller").(caller).org, 1<<20) {
			ids = append(ids, task.ID)
		}
		return c.JSON(200, map[string]any{"tasks": ids})
	}, scope("tasks:read"))
	e.POST("/api/v1/tasks", func(c *echo.Context) error {
		key := c.Request().Header.Get("Idempotency-Key")
		if len(key) > 64 {
			return echo.NewHTTPError(400, "this key is too long")
		}
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return echo.NewHTTPError(400, "bad body")
		}
		reply := t.create(c.Get("caller").(caller).org, key, body)
		if reply.location != "" {
			c.Response().Header().Set("Location", reply.location)
		}
		return c.Blob(reply.status, "application/json", reply.body)
	}, scope("tasks:write"))
	return e
}

var _ http.Handler = (*echo.Echo)(nil)
