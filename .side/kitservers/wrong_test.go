package kitservers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const tasksPath, notesPath = "/api/v1/tasks", "/api/v1/notes"

// wrongs are mistakes around a right server, by the rule that finds each and by
// what it says.
var wrongs = map[string]struct {
	rule, says string
	plant      func(right http.Handler) http.HandlerFunc
}{
	"none": {"(auth|scope|idempotency)/.*", "", func(right http.Handler) http.HandlerFunc { return right.ServeHTTP }},
	"an unknown key gets an empty list": {"auth/invalid-key", "a GET with an invalid key: got 200",
		func(right http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				_, refused := authenticate(r.Header)
				if refused != 0 && r.Header.Get("Authorization") != "" && r.Method == "GET" && r.URL.Path == tasksPath {
					_, _ = io.WriteString(w, "[]")
					return
				}
				right.ServeHTTP(w, r)
			}
		}},
	"PUT creates without the scope": {"scope/reader", "shows 2 resources, want none", instead("PUT", http.StatusOK)},
	"PATCH creates without the scope": {"scope/none-create", "shows 2 resources, want none",
		instead("PATCH", http.StatusNoContent)},
	"a GET like a preflight needs no key": {"auth/guises", "Origin: https://example.com, and more without a key: got 200",
		func(right http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" && r.Method == "GET" {
					r.Header.Set("Authorization", "Bearer "+target().Keys.Full)
				}
				right.ServeHTTP(w, r)
			}
		}},
	"a cache serves account.css": {"auth/missing-key-paths", "a GET of /api/v1/account.css without a key",
		func(right http.Handler) http.HandlerFunc {
			var cache sync.Map
			return func(w http.ResponseWriter, r *http.Request) {
				name, file := strings.CutSuffix(r.URL.Path, ".css")
				if !file {
					right.ServeHTTP(w, r)
					return
				}
				answer, cached := cache.Load(name)
				if !cached {
					r.URL.Path = name
					recorder := httptest.NewRecorder()
					right.ServeHTTP(recorder, r)
					if answer = recorder; recorder.Code == http.StatusOK {
						cache.Store(name, answer)
					}
				}
				replay(w, answer.(*httptest.ResponseRecorder), 0)
			}
		}},
	"a 400 is replayed as 201": {"idempotency/replay", "which was answered 400, got 201",
		func(right http.Handler) http.HandlerFunc {
			var refused sync.Map
			return func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("Idempotency-Key")
				recorder, status := httptest.NewRecorder(), 0
				right.ServeHTTP(recorder, r)
				if recorder.Code == http.StatusBadRequest && key != "" {
					if _, again := refused.LoadOrStore(key, true); again {
						status = http.StatusCreated
					}
				}
				replay(w, recorder, status)
			}
		}},
	"equal bodies are one on both routes": {"idempotency/routes-apart", "got the response of the first create",
		func(right http.Handler) http.HandlerFunc {
			var made sync.Map
			return func(w http.ResponseWriter, r *http.Request) {
				body := text(r)
				if name := r.Header.Get("Idempotency-Key") + body; r.Method == "POST" {
					path, _ := made.LoadOrStore(name, r.URL.Path)
					r.URL.Path = path.(string)
				}
				right.ServeHTTP(w, r)
			}
		}},
	"a slash behind the path passes the keys by": {"idempotency/guises", "repeat 1 is not the original response",
		func(right http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == tasksPath+"/" {
					r.URL.Path = tasksPath
					r.Header.Del("Idempotency-Key")
				}
				right.ServeHTTP(w, r)
			}
		}},
	"another body is answered 422 and made": {"idempotency/another-body",
		"was refused: GET /api/v1/tasks shows 1 resource",
		func(right http.Handler) http.HandlerFunc {
			var first sync.Map
			return func(w http.ResponseWriter, r *http.Request) {
				status, body := 0, text(r)
				if key := r.Header.Get("Idempotency-Key"); r.Method == "POST" && key != "" {
					if before, _ := first.LoadOrStore(key, body); before != body {
						r.Header.Del("Idempotency-Key")
						status = http.StatusUnprocessableEntity
					}
				}
				recorder := httptest.NewRecorder()
				right.ServeHTTP(recorder, r)
				replay(w, recorder, status)
			}
		}},
	"a list is answered 422 and made": {"idempotency/replay", "was refused: GET /api/v1/tasks shows 1 resource",
		func(right http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				status, body := 0, text(r)
				if one, list := strings.CutPrefix(body, "["); list {
					r.Body = io.NopCloser(strings.NewReader(strings.TrimSuffix(one, "]")))
					status = http.StatusUnprocessableEntity
				}
				recorder := httptest.NewRecorder()
				right.ServeHTTP(recorder, r)
				replay(w, recorder, status)
			}
		}},
}

// instead has a method create for each live key, and answer with the status.
func instead(method string, status int) func(http.Handler) http.HandlerFunc {
	return func(right http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, refused := authenticate(r.Header); r.Method != method || refused != 0 {
				right.ServeHTTP(w, r)
				return
			}
			if text(r) != "" && strings.HasPrefix(r.URL.Path, tasksPath) {
				create := r.Clone(r.Context())
				create.Method, create.URL.Path = "POST", tasksPath
				create.Header.Set("Authorization", "Bearer "+target().Keys.Full)
				create.Header.Del("Idempotency-Key")
				recorder := httptest.NewRecorder()
				right.ServeHTTP(recorder, create)
				if recorder.Code == http.StatusTooManyRequests {
					replay(w, recorder, 0)
					return
				}
			}
			w.Header().Set("Svc-Request-Id", r.Header.Get("Idempotency-Key")+r.URL.Path)
			w.WriteHeader(status)
		}
	}
}

// text returns the body, and leaves it to be read again.
func text(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return string(body)
}

// replay sends a recorded response, with another status unless it is 0 or the
// request was not admitted.
func replay(w http.ResponseWriter, recorder *httptest.ResponseRecorder, status int) {
	for name, values := range recorder.Header() {
		w.Header()[name] = values
	}
	if status == 0 || recorder.Code == http.StatusTooManyRequests {
		status = recorder.Code
	}
	w.WriteHeader(status)
	_, _ = w.Write(recorder.Body.Bytes())
}

// twice serves a right server at two routes.
func twice() http.Handler {
	tasks, notes := Chi(), Chi()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, is := strings.CutPrefix(r.URL.Path, notesPath); is {
			r.URL.Path = tasksPath + rest
			notes.ServeHTTP(w, r)
			return
		}
		tasks.ServeHTTP(w, r)
	})
}

// TestWrong plants mistakes that the kit has to name, each in a server that is
// right without it.
func TestWrong(t *testing.T) {
	check := build(t)
	for name, wrong := range wrongs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(wrong.plant(twice()))
			defer srv.Close()
			args := []string{"-url", srv.URL, "-keys", "-", "-run", "^" + wrong.rule + "$", "-without",
				"sandbox,sandbox-none,second,revoked,rate-limit", "-timeout", "20m"}
			for _, path := range []string{tasksPath, notesPath} {
				args = append(args, "-create", path, "-body", `{"title":"{{random}}"}`, "-list", path)
			}
			k := target().Keys
			cmd := exec.Command(check, args...)
			cmd.Stdin = strings.NewReader(`{"keys":{"full":"` + k.Full + `","none":"` + k.None + `","worker":"` + k.Worker +
				`","reader":"` + k.Reader + `","writer":"` + k.Writer + `","other":"` + k.Other + `"}}`)
			out, _ := cmd.CombinedOutput()
			found := regexp.MustCompile(`(?m)^broken +contract +` + wrong.rule + `$`).Match(out)
			if code := cmd.ProcessState.ExitCode(); (code == 1) != (wrong.says != "") || found != (wrong.says != "") ||
				!strings.Contains(string(out), wrong.says) {
				t.Errorf("contractcheck ended with %d\n%s", code, out)
			}
		})
	}
}
