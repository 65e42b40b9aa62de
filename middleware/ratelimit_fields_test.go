package middleware_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// item is one of a structured field's list (RFC 9651): a string with integer
// parameters.
type item struct {
	name   string
	params map[string]int64
}

var itemForm = regexp.MustCompile(`^"([ !#-\[\]-~]*)"((?:;[a-z*][a-z0-9_.*-]*=-?[0-9]{1,15})*)$`)

func items(t testing.TB, h http.Header, name string) []item {
	t.Helper()
	values := h.Values(name)
	if len(values) != 1 {
		t.Errorf("%s: got %q, want one line", name, values)
		return nil
	}
	var list []item
	for _, text := range strings.Split(values[0], ", ") {
		m := itemForm.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s: %q is not an item of a list", name, text)
			return nil
		}
		params := map[string]int64{}
		for _, p := range strings.Split(m[2], ";")[1:] {
			key, value, _ := strings.Cut(p, "=")
			params[key], _ = strconv.ParseInt(value, 10, 64)
		}
		list = append(list, item{m[1], params})
	}
	return list
}

// TestRateLimitFields reads the fields of draft-11 through a run of requests.
func TestRateLimitFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, live, _, _ := limited(t, middleware.RateLimitOptions{
			Fields: middleware.FieldsDraft11, Organization: policy("organization", "4-M", 0), Key: policy("key", "100-S", 50),
		})
		for i := range 6 {
			path := []string{"/api/v1/tasks", "/api/v1/account", "/api/v1/none"}[i%3]
			res := serve(api, request("GET", path, live, ""))
			policies, states := items(t, res.Header, "RateLimit-Policy"), items(t, res.Header, "RateLimit")
			if got := fmt.Sprint(policies); got != "[{organization map[q:4 w:60]} {key map[q:100 w:1]}]" {
				t.Errorf("got policies %s", got)
			}
			if len(states) != 2 || states[0].name != "organization" || states[1].name != "key" {
				t.Fatalf("got states %v", states)
			}
			left := max(3-int64(i), 0)
			if got := states[0].params["r"]; got != left {
				t.Errorf("request %d: got %d left, want %d", i, got, left)
			}
			if (res.StatusCode == 429) != (i >= 4) {
				t.Errorf("request %d: got %d", i, res.StatusCode)
			}
			reset := min(int64(i)+1, 4) * 15 // until the bucket is full again
			if i >= 4 {
				reset = int64(wait(t, res).Seconds()) // or until the request may be repeated
			} else if res.Header.Get("Retry-After") != "" {
				t.Errorf("request %d: got Retry-After %q", i, res.Header.Get("Retry-After"))
			}
			if got := states[0].params["t"]; got != reset {
				t.Errorf("request %d: got t=%d, want %d", i, got, reset)
			}
			if got := states[1].params; got["r"] != 50-min(int64(i)+1, 4) || got["t"] != 1 {
				t.Errorf("request %d: got %v for the key", i, got)
			}
		}
	})
}

func TestRateLimitFieldsOfOddLimits(t *testing.T) {
	tests := []struct {
		name  string
		limit ratelimit.Limit
		want  string
	}{
		{"sub-second window", ratelimit.Limit{Count: 5, Period: 500 * time.Millisecond}, `"p";q=5 "p";r=4;t=1`},
		{"fraction of a second", ratelimit.Limit{Count: 5, Period: 1500 * time.Millisecond}, `"p";q=5 "p";r=4;t=1`},
		{"two seconds", ratelimit.Limit{Count: 5, Period: 2 * time.Second}, `"p";q=5;w=2 "p";r=4;t=1`},
		{"beyond fifteen digits", ratelimit.Limit{Count: 4e15, Period: 4e18 / 1e9 * time.Second}, `"p";q=999999999999999;w=4000000000 "p";r=999999999999999;t=1`},
		{"odd name", ratelimit.Limit{Count: 5, Period: time.Second}, `"p";q=5;w=1 "p";r=4;t=1`},
	}
	for _, tt := range tests {
		api, live, _, _ := limited(t, middleware.RateLimitOptions{Fields: middleware.FieldsDraft11, Organization: &ratelimit.Policy{Name: "p", Limit: tt.limit}})
		res := serve(api, request("GET", "/api/v1/tasks", live, ""))
		items(t, res.Header, "RateLimit-Policy")
		items(t, res.Header, "RateLimit")
		if got := res.Header.Get("RateLimit-Policy") + " " + res.Header.Get("RateLimit"); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	api, live, _, _ := limited(t, middleware.RateLimitOptions{Organization: policy("p", "5-S", 0)})
	if res := serve(api, request("GET", "/api/v1/tasks", live, "")); res.Header["Ratelimit"] != nil || res.Header["Ratelimit-Policy"] != nil {
		t.Errorf("without the option: got %v", res.Header)
	}
}

// TestRateLimitFieldsOfGitHub: the fields tell of the limiting policy. After a
// refusal nothing is left, also where a cost is more than what is left.
func TestRateLimitFieldsOfGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token := ring.issue(t)
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
			Store: ratelimit.NewMemory(), Fields: middleware.FieldsGitHub, Organization: policy("organization", "4-M", 0), Key: policy("key", "100-S", 50),
		}})
		api.HandleWith("GET /api/v1/one", middleware.AnyKey(), middleware.RouteOptions{}, http.HandlerFunc(sayOK))
		api.HandleWith("GET /api/v1/two", middleware.AnyKey(), middleware.RouteOptions{Cost: 2}, http.HandlerFunc(sayOK))
		time.Sleep(300 * time.Millisecond)
		began := time.Now().Add(-300 * time.Millisecond).Unix()
		for _, tt := range []struct {
			path   string
			status int
			want   string
			reset  int64 // seconds after began, rounded up
		}{
			{"one", 200, "4 3 1 organization", 16},
			{"two", 200, "4 1 3 organization", 46},
			{"two", 429, "4 0 4 organization", 16},
			{"one", 200, "4 0 4 organization", 61},
			{"one", 429, "4 0 4 organization", 16},
		} {
			h := serve(api, request("GET", "/api/v1/"+tt.path, token, "")).Header
			var got []string
			for _, name := range []string{"Limit", "Remaining", "Used", "Resource"} {
				got = append(got, h.Get("X-RateLimit-"+name))
			}
			if text := strings.Join(got, " "); text != tt.want || h.Get("X-RateLimit-Reset") != fmt.Sprint(began+tt.reset) || h["Ratelimit"] != nil {
				t.Errorf("%s: got %v, want %s and a reset at %d", tt.path, h, tt.want, began+tt.reset)
			}
			if (h.Get("Retry-After") == "") != (tt.status == 200) {
				t.Errorf("%s: got Retry-After %q, want status %d", tt.path, h.Get("Retry-After"), tt.status)
			}
		}
	})
}

// TestRateLimitTwice: two pieces, one by address before authentication and one
// behind it, make one field with an item of each.
func TestRateLimitTwice(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	limit := func(o middleware.RateLimitOptions) *middleware.Guard {
		o.Store, o.Fields = ratelimit.NewMemory(), middleware.FieldsDraft11
		return middleware.New(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: o})
	}
	client, organization := limit(middleware.RateLimitOptions{Client: policy("client", "9-S", 0)}), limit(middleware.RateLimitOptions{Organization: policy("organization", "1-H", 0)})
	h := middleware.Chain(client.RequestID, client.RateLimit, organization.Authenticate, organization.RateLimit)(http.HandlerFunc(sayOK))
	for i, want := range []int{200, 429} {
		res := serve(h, request("GET", "/", token, ""))
		states, policies := items(t, res.Header, "RateLimit"), items(t, res.Header, "RateLimit-Policy")
		if res.StatusCode != want || len(states) != 2 || len(policies) != 2 || states[0].name != "client" || states[1].name != "organization" || states[0].params["r"] != int64(8-i) {
			t.Errorf("got %d %v %v, want %d with an item of each stage", res.StatusCode, policies, states, want)
		}
	}
	if res := serve(h, request("GET", "/", "", "")); res.StatusCode != 401 || len(items(t, res.Header, "RateLimit")) != 1 {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
}
