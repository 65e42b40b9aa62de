package middleware

import "net/http"

// Chain joins stages into one. The first is the outermost: it sees the request
// first and the response last. Chain() is the stage that does nothing; a nil
// stage panics.
func Chain(stages ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	for _, stage := range stages {
		if stage == nil {
			panic("middleware: Chain: a stage is nil")
		}
	}
	return func(next http.Handler) http.Handler {
		for i := len(stages) - 1; i >= 0; i-- {
			next = stages[i](next)
		}
		return next
	}
}
