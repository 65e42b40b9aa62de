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

// mistake answers a request with a mistake, around a right server. What it keeps
// from request to request is in seen.
type mistake func(right http.Handler, seen *sync.Map, w http.ResponseWriter, r *http.Request)

// wrongs are mistakes, by the rule that finds each and by what it says.
var wrongs = map[string]struct {
	rule, says string
	answer     mistake
}{
	"none": {"(auth|scope|idempotency)/.*", "",
		func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) { right.ServeHTTP(w, r) }},
	"an unknown key gets an empty list": {"auth/invalid-key", "a GET with an invalid key: got 200",
		func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) {
			_, refused := authenticate(r.Header)
			if refused != 0 && r.Header.Get("Authorization") != "" && r.Method == "GET" && r.URL.Path == tasksPath {
				_, _ = io.WriteString(w, "[]")
				return
			}
			right.ServeHTTP(w, r)
		}},
	"PUT creates without the scope": {"scope/reader", "shows 2 resources, want none", instead("PUT", http.StatusOK)},
	"PATCH creates without the scope": {"scope/none-create", "shows 2 resources, want none",
		instead("PATCH", http.StatusNoContent)},
	"a GET like a preflight needs no key": {"auth/guises", "Origin: https://example.com, and more without a key: got 200",
		func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" && r.Method == "GET" {
				r.Header.Set("Authorization", "Bearer "+target().Keys.Full)
			}
			right.ServeHTTP(w, r)
		}},
	"a cache serves account.css": {"auth/missing-key-paths", "a GET of /api/v1/account.css without a key",
		func(right http.Handler, cache *sync.Map, w http.ResponseWriter, r *http.Request) {
			name, file := strings.CutSuffix(r.URL.Path, ".css")
			if !file {
				right.ServeHTTP(w, r)
				return
			}
			answer, cached := cache.Load(name)
			if !cached {
				r.URL.Path = name
				recorder := recorded(right, r)
				if answer = recorder; recorder.Code == http.StatusOK {
					cache.Store(name, answer)
				}
			}
			replay(w, answer.(*httptest.ResponseRecorder), 0)
		}},
	"a 400 is replayed as 201": {"idempotency/replay", "which was answered 400, got 201",
		func(right http.Handler, refused *sync.Map, w http.ResponseWriter, r *http.Request) {
			recorder, status := recorded(right, r), 0
			if key := r.Header.Get("Idempotency-Key"); recorder.Code == http.StatusBadRequest && key != "" {
				if _, again := refused.LoadOrStore(key, true); again {
					status = http.StatusCreated
				}
			}
			replay(w, recorder, status)
		}},
	"equal bodies are one on both routes": {"idempotency/routes-apart", "got the response of the first create",
		func(right http.Handler, made *sync.Map, w http.ResponseWriter, r *http.Request) {
			if name := r.Header.Get("Idempotency-Key") + text(r); r.Method == "POST" {
				path, _ := made.LoadOrStore(name, r.URL.Path)
				r.URL.Path = path.(string)
			}
			right.ServeHTTP(w, r)
		}},
	"a slash behind the path passes the keys by": {"idempotency/guises", "repeat 1 is not the original response",
		func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == tasksPath+"/" {
				r.URL.Path = tasksPath
				r.Header.Del("Idempotency-Key")
			}
			right.ServeHTTP(w, r)
		}},
	"another body is answered 422 and made": {"idempotency/another-body",
		"was refused: GET /api/v1/tasks shows 1 resource",
		func(right http.Handler, first *sync.Map, w http.ResponseWriter, r *http.Request) {
			status, body := 0, text(r)
			if key := r.Header.Get("Idempotency-Key"); r.Method == "POST" && key != "" {
				if before, _ := first.LoadOrStore(key, body); before != body {
					r.Header.Del("Idempotency-Key")
					status = http.StatusUnprocessableEntity
				}
			}
			replay(w, recorded(right, r), status)
		}},
	"a list is answered 422 and made": {"idempotency/replay", "was refused: GET /api/v1/tasks shows 1 resource",
		func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) {
			status := 0
			if one, list := strings.CutPrefix(text(r), "["); list {
				r.Body = io.NopCloser(strings.NewReader(strings.TrimSuffix(one, "]")))
				status = http.StatusUnprocessableEntity
			}
			replay(w, recorded(right, r), status)
		}},
}

// instead has a method create for each live key, and answer with the status.
func instead(method string, status int) mistake {
	return func(right http.Handler, _ *sync.Map, w http.ResponseWriter, r *http.Request) {
		if _, refused := authenticate(r.Header); r.Method != method || refused != 0 {
			right.ServeHTTP(w, r)
			return
		}
		if text(r) != "" && strings.HasPrefix(r.URL.Path, tasksPath) {
			create := r.Clone(r.Context())
			create.Method, create.URL.Path = "POST", tasksPath
			create.Header.Set("Authorization", "Bearer "+target().Keys.Full)
			create.Header.Del("Idempotency-Key")
			if recorder := recorded(right, create); recorder.Code == http.StatusTooManyRequests {
				replay(w, recorder, 0)
				return
			}
		}
		w.Header().Set("Svc-Request-Id", r.Header.Get("Idempotency-Key")+r.URL.Path)
		w.WriteHeader(status)
	}
}

func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	return recorder
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
			right, seen := twice(), new(sync.Map)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				wrong.answer(right, seen, w, r)
			}))
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
