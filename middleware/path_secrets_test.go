package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// wantNoSecret checks that no eight characters in a row of a token's random
// part are in text, as they are or in hexadecimal.
func wantNoSecret(t testing.TB, where, text string, tokens ...string) {
	t.Helper()
	for _, token := range tokens {
		random := token[len("svc_live_"):]
		for i := range len(random) - 8 {
			part := random[i : i+8]
			for _, form := range []string{part, fmt.Sprintf("%x", part), fmt.Sprintf("%X", part), fmt.Sprintf("% x", part)} {
				if strings.Contains(text, form) {
					at := strings.Index(text, form)
					t.Errorf("%s holds %q of a key: …%s", where, part, text[max(0, at-200):at+len(form)])
					return
				}
			}
		}
	}
}

var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f"}

// TestNoSecretLeaks sends keys, good and bad, along every way that logs,
// reports or answers something.
func TestNoSecretLeaks(t *testing.T) {
	ring := newKeyring()
	live := ring.issue(t, scope.TasksWrite)
	expired, key := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production})
	ring.expire(t, key)
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	mistyped := swapLast(live)
	tokens := []string{live, expired, unknown}

	dumps := newLogged()
	panics := map[string]func(r *http.Request) any{
		"text":      func(r *http.Request) any { return "boom" },
		"request":   func(r *http.Request) any { return r },
		"header":    func(r *http.Request) any { return r.Header },
		"error":     func(r *http.Request) any { return fmt.Errorf("unexpected %q", r.Header["Authorization"]) },
		"value":     func(r *http.Request) any { return r.Header.Get("Authorization") },
		"context":   func(r *http.Request) any { return r.Context() },
		"principal": func(r *http.Request) any { p, _ := middleware.PrincipalFrom(r.Context()); return p },
	}
	for _, handler := range []string{"text", "JSON"} {
		logs, events := newLogged(), newLogged()
		options := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
		logger := slog.New(slog.NewTextHandler(logs, options))
		if handler == "JSON" {
			logger = slog.New(slog.NewJSONHandler(logs, options))
		}
		hooks := &middleware.Hooks{Logger: logger, Observe: func(ctx context.Context, e middleware.Event) {
			for _, verb := range verbs {
				fmt.Fprintf(events, verb+" "+verb+"\n", e, ctx)
			}
		}}
		down := false
		store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if down {
				return nil, errors.New("down")
			}
			return ring.keys.Lookup(ctx, d)
		})
		api := testAPI(store, middleware.Options{Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies()}, Failures: ratelimit.MustParse("1000-S"), RateLimit: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1000-S"))})
		for name, value := range panics {
			api.HandleFunc("GET /api/v1/panic/"+name, middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { panic(value(r)) })
			api.HandleFunc("POST /api/v1/panic/"+name, middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { panic(value(r)) })
		}
		api.HandleFunc("GET /api/v1/twice", middleware.AnyKey(), superfluous)
		api.HandleFunc("GET /api/v1/dump", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
			p, _ := middleware.PrincipalFrom(r.Context())
			for _, verb := range verbs {
				fmt.Fprintf(dumps, verb+"\n"+verb+"\n"+verb+"\n", r.Context(), p, w)
			}
			logger.Info("dump", "context", r.Context(), "principal", p)
			marshalled, _ := json.Marshal(r.Context())
			dumps.Write(marshalled)
		})
		api.Handle("POST /api/v1/misuse", middleware.AnyKey(), middleware.New(nil, middleware.Options{}).AnyKey(http.HandlerFunc(sayOK)))
		srv := start(t, api, func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(logs, "", 0) })

		paths := []string{"/api/v1/any", "/api/v1/account", "/api/v1/none", "/api/v1/twice", "/api/v1/misuse", "/api/v1/dump"}
		for name := range panics {
			paths = append(paths, "/api/v1/panic/"+name)
		}
		for _, down = range []bool{false, true} {
			for _, path := range paths {
				for i, token := range []string{live, expired, unknown, mistyped, "Bearer " + live, live + "\xe9"} {
					for _, method := range []string{"GET", "POST"} {
						r := newRequest(t, method, srv.URL+path, "", nil)
						r.Header.Set("Authorization", "Bearer "+token)
						r.Header.Set("Idempotency-Key", fmt.Sprint(path, i))
						res, err := srv.Client().Do(r)
						if err != nil {
							t.Fatalf("%s: %v", path, err)
						}
						var all strings.Builder
						res.Header.Write(&all)
						io.Copy(&all, res.Body)
						res.Body.Close()
						wantNoSecret(t, method+" "+path, all.String(), tokens...)
					}
				}
			}
		}
		srv.Close()
		if got := logs.String(); !strings.Contains(got, "panic while serving") || !strings.Contains(got, "could not be checked") || !strings.Contains(got, "superfluous") || !strings.Contains(got, "Require stands inside") {
			t.Errorf("the test does not reach what it is about: %s", got)
		}
		wantNoSecret(t, "the "+handler+" log", logs.String(), tokens...)
		wantNoSecret(t, "an event", events.String(), tokens...)
	}
	if dumps.String() == "" {
		t.Error("nothing was dumped")
	}
	wantNoSecret(t, "a dump", dumps.String(), tokens...)
}

// A key is not in the log even if the handler took it out of its request before
// it panicked with it.
func TestPanicWithARemovedKey(t *testing.T) {
	ring, log := newKeyring(), newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(_ http.ResponseWriter, r *http.Request) {
		out := r.Header.Clone()
		r.Header.Del("Authorization")
		panic(fmt.Sprint(out))
	})
	token := ring.issue(t)
	for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
		if got := serve(api, request("POST", "/api/v1/x", token, "{}", line)); got.StatusCode != 500 {
			t.Errorf("%s: got %d", line, got.StatusCode)
		}
	}
	if text := log.String(); strings.Contains(text, token) || !strings.Contains(text, "[secret]") {
		t.Errorf("the log holds the key: %s", text)
	}
}

// An error of an authenticator that quotes the credentials is in the log
// without them.
func TestAuthenticatorErrorWithCredentials(t *testing.T) {
	log := newLogged()
	introspect := middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		return middleware.Principal{}, fmt.Errorf("Get %q: %w", "https://login.example/introspect?token="+token, context.DeadlineExceeded)
	})
	for _, auth := range []middleware.Authenticator{introspect, middleware.FirstOf(middleware.KeyAuthenticator(keystore.NewMemory(), middleware.Options{}), introspect)} {
		api := testAPI(nil, middleware.Options{Hooks: log.hooks(), Authenticator: auth})
		wantRefusal(t, "introspection is down", serve(api, request("GET", "/api/v1/any", jwt, "")), 503, "key_store_unavailable", "")
	}
	if text := log.String(); strings.Contains(text, jwt) || strings.Count(text, "introspect?token=[secret]") != 2 || !strings.Contains(text, "deadline exceeded") {
		t.Errorf("got the log %s", text)
	}
}

// A key that a client has put into its path is in no line about that request.
func TestKeyInThePath(t *testing.T) {
	ring, log := newKeyring(keystore.CacheOptions{Service: acme()}), newLogged()
	o := middleware.Options{Hooks: log.hooks(), Service: acme(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
	api := middleware.NewAPI(ring.keys, o)
	var late http.ResponseWriter
	for path, h := range map[string]http.HandlerFunc{
		"panic":  func(http.ResponseWriter, *http.Request) { panic("boom") },
		"misuse": func(w http.ResponseWriter, r *http.Request) { api.ServeHTTP(w, r) },
		"late":   func(w http.ResponseWriter, _ *http.Request) { late = w },
		"bypassed": func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(writerKey{}).(http.ResponseWriter).WriteHeader(201)
		},
	} {
		api.HandleFunc("POST /api/v1/"+path+"/{key}", middleware.AnyKey(), h)
	}
	token := ring.issue(t)
	for _, path := range []string{"panic", "misuse", "late", "bypassed"} {
		for _, key := range []string{token, oldKey} {
			r, w := request("POST", "/api/v1/"+path+"/"+key, token, "{}", "Idempotency-Key: "+path+key[:5]), httptest.NewRecorder()
			middleware.New(nil, o).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, w)))
			})).ServeHTTP(w, r)
			if late != nil {
				late.WriteHeader(422)
				late = nil
			}
		}
		want := 2
		if path == "late" {
			want++ // the warning of an empty response
		}
		if got := strings.Count(log.String(), "path=/api/v1/"+path+"/[secret]"); got != want {
			t.Errorf("%s: got %d lines about the request, want %d: %s", path, got, want, log)
		}
	}
	wantNoSecret(t, "the log", log.String(), token, oldKey)
}

type writerKey struct{}
