package bench

import (
	"net/http"

	"github.com/go-chi/chi/v5/middleware"
)

// sendRequestID puts the id of chi's RequestID on the response.
func sendRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(middleware.RequestIDHeader, middleware.GetReqID(r.Context()))
		next.ServeHTTP(w, r)
	})
}
