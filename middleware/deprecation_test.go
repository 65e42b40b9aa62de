package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestDeprecatedRoutes: each response of the route tells of its end once, and
// its Event that it was called.
func TestDeprecatedRoutes(t *testing.T) {
	ring, o := newKeyring(), &observed{t: t}
	token, poor := ring.issue(t, scope.TasksWrite), ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: o.hooks(), Idempotency: keyedOptions{Runner: replies()}})
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	route := func(path string, ro middleware.RouteOptions) {
		api.HandleFunc("POST /api/v1/"+path, middleware.Require(scope.TasksWrite),
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Panic") != "" {
					panic("boom")
				}
				w.Header().Add("Link", "</next>; rel=next")
			}, ro)
	}
	route("both", middleware.RouteOptions{Deprecated: since, Sunset: since, Successor: "https://example.com/v2?a=b"})
	route("relative", middleware.RouteOptions{Deprecated: since, Successor: "//docs.example.com/v2"})
	route("since", middleware.RouteOptions{Deprecated: since, Successor: "/v2"})
	route("until", middleware.RouteOptions{Sunset: since})
	route("stays", middleware.RouteOptions{})
	const deprecation, sunset = "@1767319445", "Fri, 02 Jan 2026 02:04:05 GMT"
	for _, tt := range []struct{ path, token, line, deprecation, sunset, link string }{
		{"both", token, "A: b", deprecation, sunset, `<https://example.com/v2?a=b>; rel="deprecation sunset"`},
		{"both", token, "Idempotency-Key: 1", deprecation, sunset, `<https://example.com/v2?a=b>; rel="deprecation sunset"`},
		{"both", token, "Idempotency-Key: 1", deprecation, sunset, `<https://example.com/v2?a=b>; rel="deprecation sunset"`},
		{"both", token, "Idempotency-Key: ", deprecation, sunset, `<https://example.com/v2?a=b>; rel="deprecation sunset"`},
		{"since", token, "Panic: 1", deprecation, "", `</v2>; rel="deprecation"`},
		{"since", poor, "A: b", deprecation, "", `</v2>; rel="deprecation"`},
		{"until", token, "A: b", "", sunset, ""},
		{"stays", token, "A: b", "", "", ""},
	} {
		e, got := o.ask(api, request("POST", "/api/v1/"+tt.path, tt.token, "", tt.line))
		links := got.Header["Link"]
		if got.StatusCode == 200 {
			links = links[:len(links)-1] // the handler's own
		}
		if len(got.Header["Deprecation"]) > 1 || len(got.Header["Sunset"]) > 1 || len(links) > 1 ||
			got.Header.Get("Deprecation") != tt.deprecation || got.Header.Get("Sunset") != tt.sunset ||
			(tt.link != "") != (len(links) == 1) || tt.link != "" && links[0] != tt.link ||
			e.Deprecated != (tt.path != "stays") {
			t.Errorf("%+v: got %d %v and the Event %+v", tt, got.StatusCode, got.Header, e)
		}
	}
	if r := api.Routes()[0]; r.Options.Deprecated != since || r.Options.Sunset != since {
		t.Errorf("got %+v", r)
	}
	for want, ro := range map[string]middleware.RouteOptions{
		"Sunset is before Deprecated":   {Deprecated: since, Sunset: since.Add(-time.Second)},
		"neither Deprecated nor Sunset": {Successor: "/v2"},
		"not a URL":                     {Deprecated: since, Successor: `/v2>; rel="next"`},
		"the scheme \"javascript\"":     {Deprecated: since, Successor: "javascript:alert(1)"},
		"the scheme \"data\"":           {Deprecated: since, Successor: "DATA:text/html,x"},
		"Successor is not a URL":        {Deprecated: since, Successor: "/v2\r\nA: b"},
	} {
		wantPanic(t, want, func() { route("wrong", ro) })
	}
}
