package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What this program decides itself. A test of fleet wants the contract of it.
func TestResponses(t *testing.T) {
	srv := start(t, "1000-S")
	const tasks, body = "/api/v1/tasks", `{"title": "Light the harbour"}`
	for _, row := range []struct {
		key, method, path, body string
		status                  int
		code                    string
	}{
		{"full", "GET", tasks + "/none", "", 404, "not_found"},
		{"full", "POST", tasks + "/none/cancel", "", 404, "not_found"},
		{"full", "DELETE", tasks, "", 405, "method_not_allowed"},
		{"full", "GET", "/", "", 404, "not_found"},
		{"full", "GET", "//api/v1/tasks", "", 307, ""},

		{"full", "POST", tasks, "", 400, "bad_request"},
		{"full", "POST", tasks, "title=x", 400, "bad_request"},
		{"full", "POST", tasks, body + "{}", 400, "bad_request"},
		{"full", "POST", tasks, "null", 400, "bad_request"},
		{"full", "POST", tasks, `{"title": 1}`, 400, "bad_request"},
		{"full", "POST", tasks, `{"title": " "}`, 400, "bad_request"},
		{"full", "POST", tasks, `{"title": "` + strings.Repeat("x", 64<<10) + `"}`, 400, "bad_request"},

		{"", "GET", "/", "", 401, "api_key_missing"},
		{"", "GET", "//api/v1/tasks", "", 401, "api_key_missing"},
		{"", "GET", "/api/v1", "", 401, "api_key_missing"},
		{"", "GET", "/developers", "", 401, "api_key_missing"},
		{"", "GET", "/api/v1/../../developer", "", 401, "api_key_missing"},
		{"", "GET", "/developer/../api/v1/tasks", "", 401, ""},

		{"worker", "GET", tasks + "/none", "", 403, "insufficient_scope"},
		{"worker", "POST", tasks + "/none/cancel", "", 403, "insufficient_scope"},
	} {
		what := fmt.Sprintf("%s %s %.40s with the key %q", row.method, row.path, row.body, row.key)
		got := srv.send(t, row.key, row.method, row.path, row.body)
		id := got.Header.Get("Svc-Request-Id")
		if got.StatusCode != row.status || id == "" {
			t.Errorf("%s: got %s %s with the id %q, want %d", what, got.Status, got.text, id, row.status)
		}
		if row.code == "" {
			continue
		}
		problem := decode[struct {
			Code, Detail string
			RequestID    string `json:"request_id"`
		}](t, got.text)
		if problem.Code != row.code || problem.Detail == "" || problem.RequestID != id {
			t.Errorf("%s: got %s, want the code %s", what, got.text, row.code)
		}
	}
}

func TestAccount(t *testing.T) {
	srv := start(t, "100-S")
	for key, want := range map[string]string{
		"full": "org_harbour production", "sandbox": "org_harbour sandbox", "other": "org_lantern production",
	} {
		got := srv.send(t, key, "GET", "/api/v1/account", "")
		account := decode[struct {
			Organization, Environment, Key string
			Scopes                         []string
		}](t, got.text)
		if account.Organization+" "+account.Environment != want || !strings.HasPrefix(account.Key, "key_") ||
			len(account.Scopes) != 4 || strings.Contains(got.text, srv.keys[key]) {
			t.Errorf("%s: got %s", key, got.text)
		}
	}
}

// The limit is the organization's, not the key's, and of one environment.
func TestRates(t *testing.T) {
	srv := start(t, "3-H")
	for _, keys := range [][]string{{"full", "none"}, {"other"}} {
		for n := range 4 {
			got := srv.send(t, keys[n%len(keys)], "GET", "/api/v1/account", "")
			if limited := got.StatusCode == http.StatusTooManyRequests; limited != (n == 3) ||
				(got.Header.Get("Retry-After") != "") != limited {
				t.Errorf("request %d of %v: got %s with Retry-After %q", n, keys, got.Status, got.Header.Get("Retry-After"))
			}
		}
	}
	if got := srv.send(t, "sandbox", "GET", "/api/v1/account", ""); got.StatusCode != http.StatusOK {
		t.Errorf("the sandbox: got %s", got.Status)
	}
}
