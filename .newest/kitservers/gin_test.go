package kitservers

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// Gin has fixed windows, titles that must be unique, 409 for a duplicate in
// progress, a page for every unknown path and a create that demands a key.
func Gin() http.Handler {
	t := newTasks()
	t.unique = true
	limit := &windows{limit: 40, length: time.Second, used: make(map[string]int)}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	// Gin redirects in front of its middleware, without a request id.
	r.RedirectTrailingSlash = false
	r.Use(func(c *gin.Context) {
		var id [12]byte
		_, _ = rand.Read(id[:])
		c.Header("Svc-Request-Id", hex.EncodeToString(id[:]))
	}, gin.Recovery())
	r.NoRoute(func(c *gin.Context) {
		c.Data(200, "text/html; charset=utf-8", []byte("<!doctype html><title>App</title><script src=/app.js></script>"))
	})
	api := r.Group("/api/v1", func(c *gin.Context) {
		who, status := authenticate(c.Request.Header)
		if status != 0 {
			c.AbortWithStatusJSON(status, gin.H{"message": "who are you?"})
			return
		}
		if wait := limit.admit(who.org); wait > 0 {
			c.Header("Retry-After", retryAfter(wait))
			c.AbortWithStatusJSON(429, gin.H{"message": "too many"})
			return
		}
		c.Set("caller", who)
	})
	scope := func(name string) gin.HandlerFunc {
		return func(c *gin.Context) {
			if !c.MustGet("caller").(caller).may(name) {
				c.AbortWithStatusJSON(403, gin.H{"message": "not yours"})
			}
		}
	}
	api.GET("/account", scope("account:read"), func(c *gin.Context) {
		c.JSON(200, gin.H{"organization": c.MustGet("caller").(caller).org})
	})
	api.GET("/tasks", scope("tasks:read"), func(c *gin.Context) {
		c.JSON(200, gin.H{"items": t.list(c.MustGet("caller").(caller).org, 1000), "next": nil})
	})
	api.POST("/tasks", scope("tasks:write"), func(c *gin.Context) {
		key := c.GetHeader("Idempotency-Key")
		if key == "" {
			c.JSON(400, gin.H{"message": "Idempotency-Key is missing"})
			return
		}
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			c.JSON(400, gin.H{"message": "the body ended early"})
			return
		}
		reply := t.create(c.MustGet("caller").(caller).org, key, body)
		if reply.location != "" {
			c.Header("Location", reply.location)
		}
		c.Data(reply.status, "application/json", reply.body)
	})
	return r
}
