package reference

import (
	"net/http"
	"slices"
	"strings"
)

// allow wants a scope, or answers 403.
func (s *Server) allow(x *exchange, scope string) bool {
	family, verb, _ := strings.Cut(scope, ":")
	sameVerb := slices.ContainsFunc(x.key.scopes, func(held string) bool { return strings.HasSuffix(held, ":"+verb) })
	inFamily := slices.ContainsFunc(x.key.scopes, func(held string) bool { return strings.HasPrefix(held, family+":") })
	decision := x.key.org + x.key.env + x.r.Method + x.r.URL.Path
	_, cached := s.allowed.Load(decision)
	joined := false
	if s.has("scope-singleflight") && x.r.Method == "GET" {
		own := x.key
		if !own.may(scope) {
			own = nil
		}
		joined = s.beside(decision, own) != nil
	}
	if x.key.may(scope) || joined || s.any(granted, x) || s.has("scope-decision-cached") && cached ||
		s.has("scope-verb") && sameVerb ||
		s.has("scope-family") && inFamily || s.has("scope-write-reads") && x.key.may(family+":write") {
		s.allowed.Store(decision, true)
		return true
	}
	x.refuse(s.status("lacking", http.StatusForbidden), "insufficient_scope")
	return false
}

// granted are the defects that let a request pass without the scope.
var granted = map[string]when{
	"scope-off":              func(x *exchange) bool { return true },
	"scope-empty-all":        func(x *exchange) bool { return len(x.key.scopes) == 0 },
	"scope-any":              func(x *exchange) bool { return len(x.key.scopes) > 0 },
	"scope-get-open":         func(x *exchange) bool { return x.r.Method == "GET" },
	"scope-head-open":        func(x *exchange) bool { return x.r.Method == "HEAD" },
	"scope-slash-open":       func(x *exchange) bool { return strings.HasSuffix(x.r.URL.Path, "/") },
	"scope-doubled-open":     func(x *exchange) bool { return strings.Contains(x.r.URL.Path, "//") },
	"scope-second-list-open": func(x *exchange) bool { return x.r.URL.Path == Deliverables && x.r.Method == "GET" },
	"scope-second-open":      func(x *exchange) bool { return x.r.URL.Path == Deliverables },
	"scope-override":         func(x *exchange) bool { return sent("X-Http-Method-Override")(x) && x.r.Method == "GET" },
	"scope-http2-post-open":  func(x *exchange) bool { return x.r.ProtoMajor == 2 && x.r.Method == "POST" },
	"attack-scope-http2":     func(x *exchange) bool { return x.r.ProtoMajor == 2 },
	"sandbox-unscoped":       func(x *exchange) bool { return x.key.env == "test" },
	"scope-etag-open":        sent("If-None-Match"),
	"scope-range-open":       sent("Range"),
	"scope-method-case":      func(x *exchange) bool { return x.r.Method != strings.ToUpper(x.r.Method) },
	"scope-cors-open":        sent("Origin"),
	"scope-text-open": func(x *exchange) bool {
		return strings.HasPrefix(x.r.Header.Get("Content-Type"),
			"text/plain")
	},
	"item-unscoped": func(x *exchange) bool { return strings.HasPrefix(x.r.URL.Path, Tasks+"/") },
	"scope-second-try": func(x *exchange) bool {
		_, again := x.s.asked.LoadOrStore(x.token+" "+x.r.Method+" "+x.r.URL.Path, true)
		return again
	},
	"scope-keyless-open": func(x *exchange) bool {
		return x.r.Method == "POST" && x.r.Header.Get("Idempotency-Key") == ""
	},
}

// foreign are the defects that find what belongs to another organization.
var foreign = map[string]when{
	"item-org":        func(x *exchange) bool { return x.r.Method == "GET" || x.r.Method == "HEAD" },
	"item-delete-org": func(x *exchange) bool { return x.r.Method == "DELETE" },
	"item-cached-org": readBefore,
}
