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
	type change = func(handlers *http.Request) *http.Request
	copied := func(r *http.Request) *http.Request { return r.WithContext(r.Context()) }
	cloned := func(r *http.Request) *http.Request { return r.Clone(r.Context()) }
	emptied := func(of change) change {
		return func(r *http.Request) *http.Request {
			r = of(r)
			r.Body = http.NoBody
			return r
		}
	}
	another := func(r *http.Request) change { return func(*http.Request) *http.Request { return r } }
	bare := &http.Request{RequestURI: "/x"}
	for _, tt := range []struct {
		name  string
		outer *http.Request
		r     change // nil: outer itself
		want  bool
	}{
		{"itself", received(), nil, true},
		{"the handler's", received(), func(r *http.Request) *http.Request { return r }, true},
		{"with another context", received(), copied, true},
		{"with another body", received(), emptied(copied), true},
		{"a clone", received(), cloned, true},
		{"a clone of one that was made", made(strings.NewReader("{}")), cloned, true},
		{"with another context and body, of one that was made", made(nil), emptied(copied), true},
		{"a clone with another body", received(), emptied(cloned), true},
		// A clone with another body looks like a request that a server received of
		// the same target, and a replay must not pass by it.
		{"received", received(), another(received()), true},
		{"without header", received(), another(bare), true},
		{"both without header", &http.Request{RequestURI: "/x"}, another(bare), true},
		{"received, of another target", received(), another(httptest.NewRequest("POST", "/y", nil)), false},
		{"a clone whose target is cleared", received(), func(r *http.Request) *http.Request {
			r = r.Clone(r.Context())
			r.RequestURI = ""
			return r
		}, false},
		{"made", received(), another(made(strings.NewReader("{}"))), false},
		{"made, with the handler's body", received(), func(r *http.Request) *http.Request { return made(r.Body) }, false},
		{"made, with the header", received(), func(r *http.Request) *http.Request {
			sub := made(nil)
			sub.Header = r.Header
			return sub
		}, false},
	} {
		bodies, body := Bodies{Max: 1 << 20}, Body{}
		if err := bodies.Read(&body, "", httptest.NewRecorder(), tt.outer, 1<<10); err != nil {
			t.Fatal(err)
		}
		r := tt.outer
		if tt.r != nil {
			handlers := r.WithContext(t.Context())
			handlers.Body = body.Reader()
			r = tt.r(handlers)
		}
		if got := SameRequest(tt.outer, r); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
