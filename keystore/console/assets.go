package console

import (
	_ "embed"
	"net/http"
)

//go:embed console.js
var script string

// asset serves the style sheet and the script, to anybody: they are the same
// for all, and the pages that refuse use them too.
func (x *exchange) asset(at string) bool {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return false
	}
	switch at {
	case "console.css":
		x.write(http.StatusOK, "text/css; charset=utf-8", []byte(x.look.css))
	case "console.js":
		x.write(http.StatusOK, "text/javascript; charset=utf-8", []byte(script))
	default:
		return false
	}
	return true
}
