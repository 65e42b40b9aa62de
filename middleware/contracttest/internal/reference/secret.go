package reference

import (
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// creator returns the API key that made the resource, where a defect shows it.
func (s *Server) creator(t *resource) string {
	if s.has("secret-as-creator") {
		return t.maker
	}
	return ""
}

// metrics counts the requests of each API key.
func (s *Server) metrics(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range slices.Sorted(maps.Keys(s.uses)) {
		_, _ = fmt.Fprintf(w, "requests_total{key=%q} %d\n", token, s.uses[token])
	}
}

// unknownCharset reports whether the body is in a charset that no parser knows.
func unknownCharset(r *http.Request) bool {
	_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := parameters["charset"]
	return charset != "" && !strings.EqualFold(charset, "utf-8")
}

// debugPage answers 500 with the header of the request.
func (x *exchange) debugPage() {
	x.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(x, "unknown charset\n\n")
	_ = x.r.Header.Write(x)
}
