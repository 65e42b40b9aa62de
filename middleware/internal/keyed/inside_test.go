package keyed

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestSameRequest(t *testing.T) {
	received := func() *http.Request { return httptest.NewRequest("POST", "/x", strings.NewReader("{}")) }
	made := func(body io.Reader) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "/x", body)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	tests := []struct {
		name  string
		outer *http.Request
		r     func(outer, handlers *http.Request) *http.Request
		want  bool
	}{
		{"itself", received(), func(outer, _ *http.Request) *http.Request { return outer }, true},
		{"the handler's", received(), func(_, r *http.Request) *http.Request { return r }, true},
		{"with another context", received(),
			func(_, r *http.Request) *http.Request { return r.WithContext(r.Context()) }, true},
		{"with another body", received(), func(_, r *http.Request) *http.Request {
			r = r.WithContext(r.Context())
			r.Body = http.NoBody
			return r
		}, true},
		{"a clone", received(), func(_, r *http.Request) *http.Request { return r.Clone(r.Context()) }, true},
		{"a clone of one that was made", made(strings.NewReader("{}")),
			func(_, r *http.Request) *http.Request { return r.Clone(r.Context()) }, true},
		{"with another context and body, of one that was made", made(nil), func(_, r *http.Request) *http.Request {
			r = r.WithContext(r.Context())
			r.Body = http.NoBody
			return r
		}, true},
		{"a clone with another body", received(), func(_, r *http.Request) *http.Request {
			r = r.Clone(r.Context())
			r.Body = http.NoBody
			return r
		}, true},
		// A clone with another body looks like a request that a server received of
		// the same target, and a replay must not pass by it.
		{"received", received(), func(_, r *http.Request) *http.Request { return received() }, true},
		{"without header", received(),
			func(_, r *http.Request) *http.Request { return &http.Request{RequestURI: "/x"} }, true},
		{"both without header", &http.Request{RequestURI: "/x"},
			func(_, r *http.Request) *http.Request { return &http.Request{RequestURI: "/x"} }, true},
		{"received, of another target", received(),
			func(_, r *http.Request) *http.Request { return httptest.NewRequest("POST", "/y", nil) }, false},
		{"a clone whose target is cleared", received(), func(_, r *http.Request) *http.Request {
			r = r.Clone(r.Context())
			r.RequestURI = ""
			return r
		}, false},
		{"made", received(), func(_, r *http.Request) *http.Request { return made(strings.NewReader("{}")) }, false},
		{"made, with the handler's body", received(), func(_, r *http.Request) *http.Request { return made(r.Body) },
			false},
		{"made, with the header", received(), func(_, r *http.Request) *http.Request {
			sub := made(nil)
			sub.Header = r.Header
			return sub
		}, false},
	}
	for _, tt := range tests {
		bodies, body := Bodies{Max: 1 << 20}, Body{}
		if err := bodies.Read(&body, "", httptest.NewRecorder(), tt.outer, 1<<10); err != nil {
			t.Fatal(err)
		}
		handlers := tt.outer.WithContext(t.Context())
		handlers.Body = body.Reader()
		if got := SameRequest(tt.outer, tt.r(tt.outer, handlers)); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
