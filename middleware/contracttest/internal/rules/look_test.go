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
// one sentence that says so, without any key in it. What the description alone
// shows is in TestMistakes.
func TestLook(t *testing.T) {
	s := reference.New()
	serve := func(h http.Handler) string {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return srv.URL
	}
	plain := serve(s)
	secure := httptest.NewUnstartedServer(s)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	redirecting := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://www.example.com"+r.URL.Path+"?key="+r.Header.Get("Authorization"),
			http.StatusMovedPermanently)
	}))
	refusing := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	echoing := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no database for "+r.Header.Get("Authorization"), http.StatusInternalServerError)
	}))
	alike := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.ServeHTTP(w, r)
	}))
	mail := mailServer(t)
	unique, single := serve(reference.New("free-unique")), serve(pageOfOne(reference.New()))
	halved := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "_test_") && r.URL.Path == reference.Account {
			http.NotFound(w, r)
			return
		}
		s.ServeHTTP(w, r)
	}))
	dead := httptest.NewServer(nil)
	dead.Close()

	at := func(url string) func(*rules.Target) { return func(to *rules.Target) { to.URL = url } }
	swap := func(a, b string) func(*rules.Target) {
		return func(to *rules.Target) { to.Keys[a], to.Keys[b] = to.Keys[b], to.Keys[a] }
	}
	for what, test := range map[string]struct {
		change func(*rules.Target)
		want   string
	}{
		"a dead server":    {at(dead.URL), "nothing listens on"},
		"another protocol": {at(mail), "does not speak HTTP"},
		"http on a TLS port": {at(strings.Replace(secure.URL, "https", "http", 1)),
			"speaks TLS: its URL begins with https://"},
		"https on a plain port": {at(strings.Replace(plain, "http", "https", 1)),
			"does not speak TLS: its URL begins with http://"},
		"an unknown authority": {at(secure.URL), "unknown authority: name it with -cacert"},
		"another host's certificate": {func(to *rules.Target) {
			to.URL = strings.Replace(secure.URL, "127.0.0.1", "localhost", 1)
			to.RootCAs = x509.NewCertPool()
			to.RootCAs.AddCert(secure.Certificate())
		}, "is not valid"},
		"a redirect": {at(redirecting),
			"is redirected (301) to https://www.example.com/api/v1/account: give the URL of the server itself"},
		"a key in an error": {at(echoing),
			`is answered 500, body "no database for Bearer $FULL\n"`},
		"full and none":     {swap("full", "none"), "refuses the key full (403): is it swapped"},
		"full and revoked":  {swap("full", "revoked"), "refuses the key full (401) and takes others"},
		"reader and none":   {swap("reader", "none"), "refuses the key reader (403)"},
		"other and revoked": {swap("other", "revoked"), "refuses the key other (401)"},
		"no account in the sandbox": {at(halved),
			"refuses the key sandbox (404), which may do what full may: either it is swapped or revoked, or the server"},
		"keys of another server": {at(refusing),
			"refuses every key (401): are these keys of this server?"},
		"an unknown path to read": {func(to *rules.Target) { to.Read = "/api/v1/nothing" },
			"is 404: is the URL, the base path or the path to read right?"},
		"an unknown path to create": {func(to *rules.Target) { to.Creates[0].Path = "/api/v1/nothing" },
			"is answered 404"},
		"a body that is refused": {func(to *rules.Target) { to.Creates[0].Body = `{}` }, "is answered 400, body"},
		"an unknown list": {func(to *rules.Target) { to.Creates[0].List = "/api/v1/nothing" },
			"is the path of the list right?"},
		"a list of something else": {func(to *rules.Target) { to.Creates[0].List = reference.Account },
			"a paged list needs its newest first"},
		"a page of one": {at(single), "shows one of two resources"},
		"creates that look alike": {func(to *rules.Target) { to.URL = alike; to.Creates[0].List = "" },
			"answers two creates alike"},
		"a value that is unique": {func(to *rules.Target) { to.URL = unique; to.Creates[0].Body = `{"title":"one"}` },
			"write {{random}} for what must be unique"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			to := target()
			to.URL = plain
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
