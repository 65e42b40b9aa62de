package bench

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gin-contrib/requestid"
	"github.com/gin-gonic/gin"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

func ginBearer(s *Setup) gin.HandlerFunc {
	return func(c *gin.Context) {
		token, ok := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
		if !ok {
			c.Header("WWW-Authenticate", `Bearer realm="api"`)
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "missing API key"})
			return
		}
		i, err := s.hand.find(token)
		switch {
		case errors.Is(err, errNoKey):
			c.Header("WWW-Authenticate", `Bearer realm="api", error="invalid_token"`)
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "invalid API key"})
		case err != nil:
			c.AbortWithStatusJSON(http.StatusServiceUnavailable, gin.H{"error": "try again"})
		default:
			c.Set("identity", i)
		}
	}
}

func ginIdentity(c *gin.Context) *identity { return c.MustGet("identity").(*identity) }

func ginNeed(scope string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !ginIdentity(c).may(scope) {
			c.AbortWithStatusJSON(http.StatusForbidden, gin.H{"error": "insufficient scope"})
		}
	}
}

// newGin is gin in release mode with its recovery, gin-contrib/requestid and
// the gin driver of ulule/limiter. gin has no API keys and no idempotency.
func newGin(s *Setup) Server {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	limit := limiter.New(memory.NewStore(), limiter.Rate{Limit: int64(s.Limit), Period: s.Period})
	e.Use(requestid.New(), gin.RecoveryWithWriter(io.Discard), ginBearer(s),
		ulule.NewMiddleware(limit, ulule.WithKeyGetter(func(c *gin.Context) string { return ginIdentity(c).org })))
	list := func(c *gin.Context) { c.Data(http.StatusOK, "application/json", []byte(listBody)) }
	e.GET("/api/v1/tasks", ginNeed("tasks:read"), list)
	e.GET("/api/v1/account", ginNeed("account:read"), list)
	e.POST("/api/v1/tasks", ginNeed("tasks:write"), func(c *gin.Context) {
		s.create()
		c.Header("Location", location)
		c.Data(http.StatusCreated, "application/json", []byte(createdBody))
	})
	e.GET("/api/v1/half", ginNeed("tasks:read"), func(c *gin.Context) { writeHalf(c.Writer) })
	return netHTTP{e}
}
