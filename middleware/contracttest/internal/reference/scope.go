package reference

import (
	"net/http"
	"strings"
)

// allow wants a scope, or answers 403.
func (s *Server) allow(x *exchange, scope string) bool {
	if x.key.may(scope) || s.any(granted, x) {
		return true
	}
	x.refuse(s.status("lacking", http.StatusForbidden), "insufficient_scope")
	return false
}

// granted are the defects that let a request pass without the scope.
var granted = map[string]when{
	"scope-second-open": func(x *exchange) bool { return x.r.URL.Path == Deliverables && x.r.Method == "POST" },
	"scope-override":    func(x *exchange) bool { return sent("X-Http-Method-Override")(x) && x.r.Method == "GET" },
	"scope-method-case": func(x *exchange) bool { return x.r.Method != strings.ToUpper(x.r.Method) },
}
