package bare

import (
	"context"
	"net/http"
	"strings"
)

// Authenticate wants a live key.
func Authenticate(s *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := r.Header.Values("Authorization")
		scheme, token := "", ""
		if len(lines) > 0 {
			scheme, token, _ = strings.Cut(strings.TrimSpace(lines[0]), " ")
		}
		token = strings.TrimLeft(token, " ")
		key, known := s.Keys[token]
		challenge := `Bearer realm="bare"`
		switch {
		case !strings.EqualFold(scheme, "Bearer") || token == "":
		case len(lines) > 1, !known, key.Revoked:
			challenge += `, error="invalid_token"`
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keyOfRequest{}, key)))
			return
		}
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // or net/http reads the rest of the body before it answers
		}
		w.Header().Set("WWW-Authenticate", challenge)
		Refuse(w, 401, "unauthorized")
	})
}

// Scope wants a key that may do this.
func Scope(_ *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !keyOf(r).Scoped {
			w.Header().Set("WWW-Authenticate", `Bearer realm="bare", error="insufficient_scope", scope="all"`)
			Refuse(w, 403, "insufficient_scope")
			return
		}
		next.ServeHTTP(w, r)
	})
}
