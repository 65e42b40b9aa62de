package console

import (
	"mime"
	"net/http"
	"strings"
)

func policy(frameAncestors string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors " + frameAncestors
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
	h.Add("Vary", "Accept")
}

// wantsJSON reports whether a program asks. Browsers name text/html when they
// ask for a page.
func wantsJSON(r *http.Request) bool {
	asked := isJSON(r.Header.Get("Content-Type"))
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch kind, _, _ := mime.ParseMediaType(part); kind {
		case "text/html":
			return false
		case "application/json", "application/problem+json":
			asked = true
		}
	}
	return asked
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/json"
}
