package response

import (
	"mime/multipart"
	"net/http"
)

// Leave ends the use of inner, which is outer or a stage's copy of it. Outer
// code gets the innermost Pattern, for access logs and traces. It is written
// only where it changes: a handler may send one request several times.
//
// The files of a form that was parsed inside are removed, unless outer had that
// form as given: a server removes those of its own request alone, none after
// Hijack, and over HTTP/2 none from Go 1.27 on. Outer code that needs the files
// parses the form first.
func Leave(outer, inner *http.Request, given *multipart.Form) {
	if inner.Pattern != "" && inner.Pattern != outer.Pattern {
		outer.Pattern = inner.Pattern
	}
	if form := inner.MultipartForm; form != nil && form != given {
		_ = form.RemoveAll()
	}
}
