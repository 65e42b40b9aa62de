package console

import "net/http"

func policy(l look, frameAncestors string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " + l.sources +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + frameAncestors
}

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
