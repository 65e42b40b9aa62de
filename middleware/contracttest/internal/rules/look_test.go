package rules_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// TestLook describes targets that are not what they are said to be, and wants
// one sentence that says so, without any key in it.
func TestLook(t *testing.T) {
	s := reference.New()
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(s)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://www.example.com"+r.URL.Path+"?key="+r.Header.Get("Authorization"),
			http.StatusMovedPermanently)
	}))
	t.Cleanup(redirecting.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	t.Cleanup(refusing.Close)
	echoing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no database for "+r.Header.Get("Authorization"), http.StatusInternalServerError)
	}))
	t.Cleanup(echoing.Close)
	alike := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(alike.Close)
	mail := mailServer(t)
	unique := httptest.NewServer(uniqueTitles(s))
	t.Cleanup(unique.Close)
	paged := httptest.NewServer(oldestFirst(s))
	t.Cleanup(paged.Close)
	single := httptest.NewServer(pageOfOne(reference.New()))
	t.Cleanup(single.Close)
	halved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "_test_") && r.URL.Path == reference.Account {
			http.NotFound(w, r)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(halved.Close)
	dead := httptest.NewServer(nil)
	dead.Close()

	swap := func(a, b string) func(*rules.Target) {
		return func(to *rules.Target) { to.Keys[a], to.Keys[b] = to.Keys[b], to.Keys[a] }
	}
	for what, test := range map[string]struct {
		change func(*rules.Target)
		want   string
	}{
		"a dead server":    {func(to *rules.Target) { to.URL = dead.URL }, "nothing listens on"},
		"another protocol": {func(to *rules.Target) { to.URL = mail }, "does not speak HTTP"},
		"http on a TLS port": {func(to *rules.Target) { to.URL = strings.Replace(secure.URL, "https", "http", 1) },
			"speaks TLS: its URL begins with https://"},
		"https on a plain port": {func(to *rules.Target) { to.URL = strings.Replace(plain.URL, "http", "https", 1) },
			"does not speak TLS: its URL begins with http://"},
		"an unknown authority": {func(to *rules.Target) { to.URL = secure.URL }, "unknown authority: name it with -cacert"},
		"another host's certificate": {func(to *rules.Target) {
			to.URL = strings.Replace(secure.URL, "127.0.0.1", "localhost", 1)
			to.RootCAs = x509.NewCertPool()
			to.RootCAs.AddCert(secure.Certificate())
		}, "is not valid"},
		"a redirect": {func(to *rules.Target) { to.URL = redirecting.URL },
			"is redirected (301) to https://www.example.com/api/v1/account: give the URL of the server itself"},
		"a key in an error": {func(to *rules.Target) { to.URL = echoing.URL },
			`is answered 500, body "no database for Bearer $FULL\n"`},
		"no URL": {func(to *rules.Target) { to.URL = "localhost:8080" },
			`"localhost:8080" is not the URL of a server`},
		"a URL with a path": {func(to *rules.Target) { to.URL += "/api/v1" }, "leave it out"},
		"a password": {func(to *rules.Target) { to.URL = strings.Replace(plain.URL, "//", "//me:hunter2@", 1) },
			"has a user, a query or a fragment"},

		"no full key": {func(to *rules.Target) { delete(to.Keys, "full") }, "there is no full key"},
		"a misspelt key": {func(to *rules.Target) { to.Keys["ful"] = "x" },
			`there is no key called "ful"; the names are full, none`},
		"one key twice": {func(to *rules.Target) { to.Keys["other"] = to.Keys["full"] },
			"the keys full and other are the same"},
		"a key with a newline": {func(to *rules.Target) { to.Keys["other"] += "\n" },
			"the key other has a space or a character"},
		"full and sandbox":  {swap("full", "sandbox"), "the keys full and sandbox are swapped"},
		"other and sandbox": {swap("other", "sandbox"), "the keys sandbox and other are swapped"},
		"full and none":     {swap("full", "none"), "refuses the key full (403): is it swapped"},
		"full and revoked":  {swap("full", "revoked"), "refuses the key full (401) and takes others"},
		"reader and none":   {swap("reader", "none"), "refuses the key reader (403)"},
		"other and revoked": {swap("other", "revoked"), "refuses the key other (401)"},
		"no account in the sandbox": {func(to *rules.Target) { to.URL = halved.URL },
			"refuses the key sandbox (404), which may do what full may: either it is swapped or revoked, or the server"},
		"keys of another server": {func(to *rules.Target) { to.URL = refusing.URL },
			"refuses every key (401): are these keys of this server?"},
		"an unknown offer": {func(to *rules.Target) { to.Without = []string{"sandboxes"} },
			`nothing called "sandboxes" can be left out; the names are none`},
		"given and left out": {func(to *rules.Target) { to.Without = []string{"other"} },
			"other is both given and left out"},
		"a path outside the base": {func(to *rules.Target) { to.Read = "/account" },
			`the path "/account" does not begin with /api/v1/`},
		"a path without a name": {func(to *rules.Target) { to.Read = "/api/v1/?all" },
			`the path "/api/v1/?all" does not begin with /api/v1/ and a name`},
		"an unknown path to read": {func(to *rules.Target) { to.Read = "/api/v1/nothing" },
			"is 404: is the URL, the base path or the path to read right?"},
		"an unknown path to create": {func(to *rules.Target) { to.Creates[0].Path = "/api/v1/nothing" },
			"is answered 404"},
		"a body that is refused": {func(to *rules.Target) { to.Creates[0].Body = `{}` }, "is answered 400, body"},
		"an unknown list": {func(to *rules.Target) { to.Creates[0].List = "/api/v1/nothing" },
			"is the path of the list right?"},
		"a list of something else": {func(to *rules.Target) { to.Creates[0].List = reference.Account },
			"does not show what POST"},
		"a list that is paged": {func(to *rules.Target) { to.URL = paged.URL }, "a paged list needs its newest first"},
		"a page of one":        {func(to *rules.Target) { to.URL = single.URL }, "shows one of two resources"},
		"creates that look alike": {func(to *rules.Target) { to.URL = alike.URL; to.Creates[0].List = "" },
			"answers two creates alike"},
		"a value that is unique": {func(to *rules.Target) { to.URL = unique.URL; to.Creates[0].Body = `{"title":"one"}` },
			"write {{random}} for what must be unique"},
		"three routes that creates": {func(to *rules.Target) { to.Creates = append(to.Creates, to.Creates[0]) },
			"there are 3 routes that create"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			to := target()
			to.URL = plain.URL
			to.Without = []string{"rate-limit"}
			test.change(&to)
			session, err := rules.Open(t.Context(), to)
			if err == nil {
				session.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want it to hold %q", err, test.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("got several sentences: %q", err)
			}
			for name, key := range reference.Keys() {
				if strings.Contains(err.Error(), key[9:]) {
					t.Errorf("the key %s is in %q", name, err)
				}
			}
		})
	}
}

// All mistakes of a description are said at once.
func TestLookSaysAll(t *testing.T) {
	_, err := rules.Open(t.Context(), rules.Target{URL: "nowhere", Keys: map[string]string{"fulll": "x"}, Read: "account"})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"is not the URL of a server", "there is no full key", `"fulll"`, `the path "account"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to hold %q", err, want)
		}
	}
}

// mailServer greets as SMTP does and returns its URL.
func mailServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail ready\r\n")
			c.Close()
		}
	}()
	return "http://" + ln.Addr().String()
}

// uniqueTitles refuses a second task with the title of the first.
func uniqueTitles(next http.Handler) http.Handler {
	first := true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && !first {
			w.WriteHeader(http.StatusConflict)
			return
		}
		first = first && r.Method != "POST"
		next.ServeHTTP(w, r)
	})
}

// oldestFirst lists one page, which is full.
func oldestFirst(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && r.URL.Path == reference.Tasks {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"data":[{"id":"1"},{"id":"2"}]}`)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pageOfOne lists the newest resource alone.
func pageOfOne(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.Path != reference.Tasks {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		first, _, more := strings.Cut(recorder.Body.String(), "},{")
		if more {
			first += "}]}"
		}
		fmt.Fprint(w, first)
	})
}

// The first look changes nothing in its target.
func TestLookLeavesItsTarget(t *testing.T) {
	to := target()
	before := maps.Clone(to.Keys)
	_, _ = rules.Open(t.Context(), rules.Target{URL: "http://127.0.0.1:1", Keys: to.Keys, Creates: to.Creates})
	if !maps.Equal(before, to.Keys) || to.Creates[0].Type != "" {
		t.Errorf("got %v and %v", to.Keys, to.Creates)
	}
}
