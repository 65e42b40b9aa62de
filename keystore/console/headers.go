package console

import "net/http"

// setHeaders sets what every answer carries, refusals and assets too.
func (c *console) setHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", c.csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if len(c.options.FrameAncestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
}
