package middleware_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestRetryAfterIsWholeSeconds: never 0, a fraction, a sign or a date, because
// clients raise on the one and retry at once on the other.
func TestRetryAfterIsWholeSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-time.Second: "", 0: "", 1: "1", 300 * time.Millisecond: "1", time.Second: "1", time.Second + 1: "2",
		1500 * time.Millisecond: "2", time.Minute: "60", time.Hour - 1: "3600", 1<<63 - 1: "9223372037",
	} {
		res := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 429, RetryAfter: wait})
		}), request("GET", "/", "", ""))
		if got := res.Header.Get("Retry-After"); got != want {
			t.Errorf("%v: got %q, want %q", wait, got, want)
		}
	}
}

func FuzzProblemIsJSON(f *testing.F) {
	for _, s := range []string{"", "plain", `"quoted" \ <b>&`, "\x00\n\t\x7f", "é\u2028\ufffd", "\xff\xc0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{
				Status: 403, Code: text, Detail: text, Policy: text, Missing: []scope.Name{scope.Name(text),
					"b"}, OriginalStatus: 201, OriginalLocation: text,
			})
		}))
		p := serve(h, request("GET", "/", "", "")).problem(t)
		marshalled, _ := json.Marshal(text)
		var want string
		json.Unmarshal(marshalled, &want)
		if p.Code != want || p.Detail != want || p.Policy != want || p.OriginalLocation != want ||
			!slices.Equal(p.Missing, []string{want, "b"}) {
			t.Errorf("got %+v, want %q in it", p, want)
		}
	})
}

// provoked has a way to get each refusal out of an API. The function returns
// the answer; it runs in a bubble, and what it starts with go is released at
// its end.
var provoked = []struct {
	code      string
	configure func(*middleware.Options)
	ask       func(t *testing.T, w *world) answer
}{
	{"bad_request", nil, func(t *testing.T, w *world) answer {
		r := w.post("{}")
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"ti`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		return serve(w.api, r)
	}},
	{"idempotency_key_invalid", nil, func(t *testing.T, w *world) answer {
		return serve(w.api, request("POST", "/api/v1/tasks", w.token, "{}", "Idempotency-Key: "))
	}},
	{"idempotency_key_required", func(o *middleware.Options) { o.Idempotency.Required = true },
		func(t *testing.T, w *world) answer {
			return serve(w.api, request("POST", "/api/v1/tasks", w.token, "{}"))
		}},
	{"api_key_missing", nil, faulty(noKey)},
	{"api_key_missing", nil, unread("%s", "")},
	{"api_key_missing", nil, unread("Bearer %.0s", "has an empty token")},
	{"api_key_missing", nil, unread("Token %s", "has a scheme other than Bearer")},
	{"api_key_invalid", nil, faulty(badKey)},
	{"insufficient_scope", nil, faulty(wrongScope)},
	{"several_credentials", nil, func(t *testing.T, w *world) answer {
		ring := newKeyring()
		o := middleware.Options{Hooks: quiet(), Authenticate: session(by(t, "user"))}
		return serve(testAPI(ring.keys, o), request("GET", "/api/v1/any", ring.issue(t), "", "Cookie: session=1"))
	}},
	{"address_not_allowed", nil, func(t *testing.T, w *world) answer {
		ring := newKeyring()
		token, _ := ring.grant(t, keystore.Key{Networks: trust("10.0.0.0/8")})
		return serve(testAPI(ring.keys, middleware.Options{Hooks: quiet()}), request("GET", "/api/v1/any", token, ""))
	}},
	{"caller_not_accepted", nil, func(t *testing.T, w *world) answer {
		user := always(keystore.NewCaller(nil, keystore.Identity{}))
		return serve(testAPI(nil, middleware.Options{Hooks: quiet(), Authenticate: user}),
			request("GET", "/api/v1/any", "", ""))
	}},
	{"quota_exceeded", smallQuota, faulty(overQuota)},
	{"not_found", nil, faulty(unknownPath)},
	{"method_not_allowed", nil, faulty(wrongMethod)},
	{"idempotency_in_progress", nil, faulty(inFlight)},
	{"idempotency_outcome_unknown", nil, func(t *testing.T, w *world) answer {
		w.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		aborts(w.api, httptest.NewRecorder(), w.post("{}"))
		return serve(w.api, w.post("{}"))
	}},
	{"idempotency_response_not_retained", func(o *middleware.Options) { o.Idempotency.MaxResponse = 1 },
		func(t *testing.T, w *world) answer {
			serve(w.api, w.post("{}"))
			return serve(w.api, w.post("{}"))
		}},
	{"body_too_large", func(o *middleware.Options) { o.Idempotency.MaxBody = 4 }, func(t *testing.T, w *world) answer {
		return serve(w.api, w.post("12345"))
	}},
	{"idempotency_key_reused", nil, faulty(keyReuse)},
	{"rate_limited", nil, faulty(overLimit)},
	{"too_many_failures", func(o *middleware.Options) { o.Failures = ratelimit.MustParse("1-M") },
		func(t *testing.T, w *world) answer {
			serve(w.api, request("GET", "/api/v1/tasks", "wrong", ""))
			return serve(w.api, request("GET", "/api/v1/tasks", "wrong", ""))
		}},
	{"too_many_concurrent", func(o *middleware.Options) { o.RateLimit.Concurrent = 1 }, whileBusy("GET")},
	{"internal", nil, faulty(handlerPanics)},
	{"key_store_unavailable", nil, faulty(keyStoreDown)},
	{"too_many_in_flight", func(o *middleware.Options) {
		o.Idempotency.Runner = replies(idem.Options{Wait: -1, ExecutionsPerTenant: 1})
	}, whileBusy("POST")},
	{"too_many_in_flight", func(o *middleware.Options) { // others have all transactions
		store := newJoiner()
		store.noTurn = true
		o.Idempotency.Runner = joining(store)
	}, func(t *testing.T, w *world) answer { return serve(w.api, w.post("{}")) }},
	{"idempotency_store_unavailable", nil, faulty(replyStoreDown)},
	{"idempotency_store_full", func(o *middleware.Options) {
		o.Idempotency.Runner = runnerOf(&idem.Memory{Budget: 2000}, idem.Options{Wait: -1})
	}, whileBusy("POST")},
	{"idempotency_commit_unknown", notCommitted(idem.ErrCommitUnknown), posts},
	{"idempotency_store_unavailable", notCommitted(errors.New("reset")), posts},
	{"internal", notCommitted(idem.ErrBroken), posts},
	{"constraint_violated", notCommitted(idem.ErrConstraint), posts},
	{"idempotency_interrupted", nil, func(t *testing.T, w *world) answer {
		w.does(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		return serve(w.api, w.post("{}"))
	}},
	{"rate_store_unavailable", nil, faulty(rateStoreDown)},
}

// unread sends a key in an Authorization header that is none of Bearer. The answer
// says what is wrong, without the key.
func unread(header, says string) func(*testing.T, *world) answer {
	return func(t *testing.T, w *world) answer {
		a := serve(w.api, request("GET", "/api/v1/tasks", "", "", "Authorization: "+fmt.Sprintf(header, w.token)))
		if !strings.Contains(a.body, says) || strings.Contains(a.body, w.token[len(w.token)-8:]) {
			t.Errorf("%s: got %s, want %q and no key", header, a.body, says)
		}
		return a
	}
}

// notCommitted joins creates with a transaction whose COMMIT returns an error.
func notCommitted(err error) func(*middleware.Options) {
	return func(o *middleware.Options) {
		store := newJoiner()
		store.commit = func(_, undo func()) error { undo(); return err }
		o.Idempotency.Runner = runnerOf(store, idem.Options{Wait: -1, Join: true})
	}
}

func posts(t *testing.T, w *world) answer {
	a := serve(w.api, w.post("{}"))
	if strings.Contains(a.body, "Nothing was done") {
		t.Errorf("the handler ran, and the answer is %s", a.body)
	}
	return a
}

// faulty is the request that has the fault, as in TestOrder.
func faulty(f fault) func(*testing.T, *world) answer {
	return func(t *testing.T, w *world) answer {
		a, _, _ := w.try(t, []fault{f})
		return a
	}
}

// whileBusy asks while another create is in progress.
func whileBusy(method string) func(*testing.T, *world) answer {
	return func(t *testing.T, w *world) answer {
		release := make(chan struct{})
		defer close(release)
		w.does(func(http.ResponseWriter, *http.Request) { <-release })
		go serve(w.api, w.post("{}"))
		synctest.Wait()
		return serve(w.api, request(method, "/api/v1/tasks", w.token, "", "Idempotency-Key: key-2"))
	}
}

// unheard are the refusals that net/http gives before there is a request, and
// how to get them from a connection.
var unheard = []struct{ code, sent string }{
	{"expectation_failed", "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"},
	{"header_too_large", "GET / HTTP/1.1\r\nHost: a\r\nLong: " + strings.Repeat("a", 8192) + "\r\n\r\n"},
	{"transfer_coding_not_supported", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"},
	{"http_version_not_supported", "GET / HTTP/3.0\r\nHost: a\r\n\r\n"},
}

// TestProblems holds each refusal to its golden body.
func TestProblems(t *testing.T) {
	const file = "testdata/problems.golden"
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var sections strings.Builder
	check := func(t *testing.T, code string, a answer) {
		t.Helper()
		p := a.problem(t)
		if p.Code != code || p.Status != a.StatusCode || p.RequestID != a.Header.Get("Svc-Request-Id") ||
			p.Type != "about:blank" || p.Title != http.StatusText(a.StatusCode) || p.Detail == "" {
			t.Errorf("%s: %d with %+v", code, a.StatusCode, p)
		}
		if code == "idempotency_interrupted" {
			if wait := a.Header["Retry-After"]; wait != nil {
				t.Errorf("%s: Retry-After is %q, want none: a repeat gets 409", code, wait)
			}
		} else if a.StatusCode == 429 || a.StatusCode == 503 || code == "idempotency_in_progress" {
			if wait := a.Header.Get("Retry-After"); wait == "" || strings.Trim(wait, "0123456789") != "" || wait[0] == '0' {
				t.Errorf("%s: Retry-After is %q, want whole seconds", code, wait)
			}
		}
		section := "=== " + code + "\n" + strings.TrimRight(dump(a), "\n") + "\n"
		if sections.WriteString(section); !*update && !strings.Contains(string(golden), section) {
			t.Errorf("%s lacks this section (go test -update rewrites it):\n%s", file, section)
		}
	}
	for _, row := range provoked {
		names = append(names, row.code)
		inBubble(t, row.code, func(t *testing.T) {
			w := newWorld(t, func(o *middleware.Options) {
				if row.configure != nil {
					row.configure(o)
				}
			})
			check(t, row.code, row.ask(t, w))
		})
	}

	srv := start(t, http.NotFoundHandler(), func(srv *httptest.Server) {
		srv.Config.MaxHeaderBytes = 1024
		srv.Listener = middleware.RequestIDListener(srv.Config, srv.Listener, middleware.Options{})
	})
	for _, row := range unheard {
		names = append(names, row.code)
		t.Run(row.code, func(t *testing.T) {
			c := dial(t, srv)
			c.send(row.sent)
			a := c.next("POST")
			delete(a.Header, "Date")
			check(t, row.code, a)
		})
	}
	if *update {
		if err := os.WriteFile(file, []byte(sections.String()), 0o644); err != nil {
			t.Error(err)
		}
	} else if n := strings.Count(string(golden), "=== "); n != len(names) {
		t.Errorf("%s has %d sections, want %d", file, n, len(names))
	}
	slices.Sort(names)
	names = slices.Compact(names) // a code may have several details
	if want := slices.Sorted(maps.Keys(codes.Table)); !slices.Equal(names, want) {
		t.Errorf("the tests provoke %q,\nwant all of %q", names, want)
	}
}

var update = flag.Bool("update", false, "rewrite the golden file with what the tests got")

// golden compares a text with a file, line by line, or rewrites the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.SplitAfter(string(want), "\n")
	for i, line := range strings.SplitAfter(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Fatalf("%s, line %d (go test -update rewrites it): got %s", file, i+1, line)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s goes on after %d lines", file, strings.Count(got, "\n"))
	}
}

// dump writes a response as it reads on the wire, fields sorted, request ids
// masked.
func dump(a answer) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", strings.TrimSpace(a.Status))
	names := make([]string, 0, len(a.Header))
	for name := range a.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range a.Header[name] {
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&text, "\n%s", a.body)
	return xids.ReplaceAllString(text.String(), "<request id>")
}

// The page for clients has a row for each code, with its status and
// X-Should-Retry, says where Retry-After is, and shows the body of a refusal.
func TestTheClientsKnowEveryCode(t *testing.T) {
	page, err := os.ReadFile("../.github/CLIENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(page), "\n```json\n")
	body, _, _ = strings.Cut(body, "\n```\n")
	body = xids.ReplaceAllString(strings.ReplaceAll(body, "\n ", ""), "<request id>")
	bodies, err := os.ReadFile("testdata/problems.golden")
	if err != nil || body == "" || !strings.Contains(string(bodies), body) {
		t.Errorf("the page shows a body that no refusal has: %s, %v", body, err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Codes\n")
	rows := make(map[string]int)
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue // a sentence
		}
		status, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // the head of the table
		}
		code := strings.Trim(cells[2], " `")
		row, there := codes.Table[code]
		rows[code]++
		if !there || status != row.Status {
			t.Errorf("the page has %d %s, want status %d (0: there is no such code)", status, code, row.Status)
		}
		if again := strings.TrimSpace(cells[3]); again != string(row.Again) {
			t.Errorf("%s: the page says %q of X-Should-Retry, and it is %q", code, again, row.Again)
		}
		waits := row.RetryAfter > 0 || code == codes.RateLimited // which sets its own
		if strings.Contains(cells[4], "`Retry-After`") != waits {
			t.Errorf("%s: the page says %q, and that the response has Retry-After is %t", code, cells[4], waits)
		}
	}
	for code := range codes.Table {
		if rows[code] != 1 {
			t.Errorf("the page has %d rows for %s, want one", rows[code], code)
		}
	}
}
