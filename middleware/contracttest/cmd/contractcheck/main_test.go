package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// TestMain lets many checks run at one time: they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // it is a flag, and 16 a number
	m.Run()
}

// serve serves the reference server with defects and returns the file of its
// keys, in which more is said as members of the JSON object.
func serve(t *testing.T, more string, defects ...string) string {
	t.Helper()
	return keysFile(t, serveAt(t, defects...), reference.Keys(), more)
}

func serveAt(t *testing.T, defects ...string) (url string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	reference.New(defects...).Configure(srv.Config)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// serveTLS serves the reference server over TLS, with HTTP/2, and returns the
// file of its keys and that of its certificate.
func serveTLS(t *testing.T) (keys, certificate string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(reference.New())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	certificate = filepath.Join(t.TempDir(), "root.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}
	if err := os.WriteFile(certificate, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return keysFile(t, srv.URL, reference.Keys(), creates), certificate
}

func keysFile(t *testing.T, url string, keys map[string]string, more string) string {
	t.Helper()
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	if more != "" {
		more = ", " + more
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"base_url":%q,"keys":%s%s}`, url, text, more), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// creates describes the routes of the reference server, which has no limit.
const creates = `"creates":[
	{"path":"/api/v1/tasks","body":"{\"title\":\"{{random}}\"}","list":"/api/v1/tasks"},
	{"path":"/api/v1/deliverables","body":"{\"title\":\"{{random}}\"}","list":"/api/v1/deliverables"}
], "without":["rate-limit"]`

type output struct {
	status         int
	stdout, stderr string
}

// check runs the program with an environment of lines like CI=true, and with
// more time than the slowest machine needs, unless args have another -timeout.
func check(t *testing.T, environment string, args ...string) output {
	t.Helper()
	getenv := func(name string) string {
		for _, line := range strings.Fields(environment) {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				return value
			}
		}
		return ""
	}
	var stdout, stderr bytes.Buffer
	args = append([]string{"-timeout", "20m"}, args...)
	status := run(t.Context(), args, getenv, strings.NewReader(""), &stdout, &stderr)
	return output{status, stdout.String(), stderr.String()}
}

// quick leaves out the rules that wait.
const quick = "-skip=later|refusal-at-once|at-once|expect"

// TestStatus looks at the exit status and at what is printed.
func TestStatus(t *testing.T) {
	t.Parallel()
	clean := serve(t, creates)
	repeating := serve(t, creates, "idem-replay-creates")
	rude := serve(t, creates, "no-challenge")
	bare := serve(t, creates, "path-location-bare")
	undeclared := serve(t, strings.Replace(creates, `"list":"/api/v1/deliverables"`, `"list":""`, 1))
	withoutLimit := keysFile(t, "", nil, "")
	misspelt := keysFile(t, "http://127.0.0.1:1", map[string]string{"ful": "svc_live_0123456789"}, "")
	unknown := keysFile(t, "http://127.0.0.1:1", nil, `"create":[]`)
	refused := serve(t, creates, "auth-off")
	secure, certificate := serveTLS(t)
	for what, test := range map[string]struct {
		keys, environment, args string
		status                  int
		want                    string
	}{
		"a clean server":        {clean, "", "-run auth", 0, "contract: "},
		"strictly":              {clean, "CI=true", "-strict -run scope", 0, "held"},
		"a second resource":     {repeating, "", "-run replay", 1, "\nBroken:\n"},
		"an open server":        {refused, "", "-run auth/missing", 1, "a GET without a key: got 200, want 401"},
		"advice":                {rude, "", "-run challenge", 0, "broken    advice    auth/challenge"},
		"advice that counts":    {rude, "", "-run challenge -advice", 1, "\nAdvice that is not kept:\n"},
		"a warning":             {bare, "", "-run path/location", 0, ", which does not fail the check:\n"},
		"annotated":             {bare, "GITHUB_ACTIONS=true", "-run path/location", 0, "::warning title=path/location"},
		"a warning that counts": {bare, "", "-run path/location -advice", 1, "broken    reading   path/location"},
		"skipped":               {undeclared, "", "-run second-list", 0, "Not checked, which -strict takes for a failure:"},
		"skipped, strictly":     {undeclared, "", "-run second-list -strict", 1, "without second-list"},
		"skipped, in a CI":      {undeclared, "CI=true", "-run second-list", 1, "\nNot checked:\n"},
		"in a CI, not strictly": {undeclared, "CI=true", "-run second-list -strict=false", 0, "Not checked"},
		"CI in capitals":        {undeclared, "CI=True", "-run second-list", 1, "\nNot checked:\n"},
		"a CI by its name":      {undeclared, "CI=woodpecker", "-run second-list", 1, "\nNot checked:\n"},
		"no CI":                 {undeclared, "CI=false", "-run second-list", 0, "Not checked"},
		"the wire profile":      {clean, "", "-run wire/ -wire", 1, "broken    wire      wire/request-line"},
		"no wire profile":       {clean, "CI=true", "-run wire/|path/", 0, "wire: 9 left out"},
		"what does not apply":   {clean, "", "-run http2/scope|path/version", 0, "http2/scope: the server does not"},
		"over TLS":              {secure, "CI=true", "-cacert " + certificate + " -run http2/", 0, "contract  http2/replay"},
		"no time":               {clean, "", "-timeout 1ns " + quick, 2, "there was no time left"},

		"no keys":              {"", "", "-url http://127.0.0.1:1", 2, "it needs -keys"},
		"no URL":               {withoutLimit, "", "", 2, "it needs -url"},
		"a misspelt key":       {misspelt, "", "", 2, `there is no key called "ful"`},
		"a misspelt member":    {unknown, "", "", 2, `unknown field "create"`},
		"a file that is not":   {"/nowhere.json", "", "", 2, "no such file"},
		"a dead server":        {clean, "", "-url http://127.0.0.1:1", 2, "nothing listens on 127.0.0.1:1"},
		"an unknown flag":      {"", "", "-lst /", 2, "flag provided but not defined: -lst"},
		"a list of nothing":    {"", "", "-list /api/v1/tasks", 2, "it belongs to a -create"},
		"a bad pattern":        {clean, "", "-run (", 2, "-run: error parsing regexp"},
		"an argument too many": {clean, "", "now", 2, `unexpected argument "now"`},
		"the rules":            {"", "", "-rules", 0, "contract  idempotency/replay"},
		"help":                 {"", "", "-h", 0, "Usage:"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(test.args)
			if test.keys != "" {
				args = append([]string{"-keys", test.keys}, args...)
			}
			got := check(t, test.environment, args...)
			if got.status != test.status {
				t.Errorf("got status %d, want %d", got.status, test.status)
			}
			if !strings.Contains(got.stdout+got.stderr, test.want) {
				t.Errorf("got\n%s\n%s\nwant it to hold %q", got.stdout, got.stderr, test.want)
			}
			if test.status == 2 && got.stdout != "" {
				t.Errorf("got the output %q before a mistake", got.stdout)
			}
		})
	}
}

// The page of -h names each flag, and none that there is not.
func TestUsage(t *testing.T) {
	source, err := os.ReadFile("flags.go")
	if err != nil {
		t.Fatal(err)
	}
	var flags, named []string
	pattern := regexp.MustCompile(`(?:fs\.[A-Za-z]+|ofCreate)\((?:&[a-z.A-Z]+, )?"([a-z-]+)"`)
	for _, match := range pattern.FindAllSubmatch(source, -1) {
		flags = append(flags, string(match[1]))
	}
	for _, match := range regexp.MustCompile(`(?m)^  -([a-z-]+) `).FindAllStringSubmatch(usage, -1) {
		named = append(named, match[1])
	}
	slices.Sort(flags)
	slices.Sort(named)
	if !slices.Equal(flags, named) {
		t.Errorf("the flags are %q, and the page names %q", flags, named)
	}
}

// A run that checks no rule is not green.
func TestNothingChecked(t *testing.T) {
	t.Parallel()
	clean := serve(t, creates)
	for _, args := range [][]string{{"-run", "idempotence"}, {"-skip", "."}, {"-run", "wire/"}} {
		got := check(t, "", append(args, "-keys", clean)...)
		if got.status != 2 || !strings.Contains(got.stderr, "no rule was checked") {
			t.Errorf("%v: got status %d and %q", args, got.status, got.stderr)
		}
	}
}

// A key that stands in a wrong place is not printed.
func TestMisplacedKeys(t *testing.T) {
	t.Parallel()
	const key = "svc_live_AbCdEfGhIjKlMnOp-QrSt_UvWx"
	swapped := keysFile(t, "http://127.0.0.1:1", map[string]string{key: "full"}, "")
	outside := keysFile(t, "http://127.0.0.1:1", nil, `"`+key+`":"full"`)
	for _, args := range []string{
		"-keys " + key, key, "-" + key, "-without " + key + " -keys " + serve(t, creates), "-keys " + swapped,
		"-keys " + outside, "-url " + key + " -keys " + swapped, "-timeout " + key, "-read " + key + " -keys " + swapped,
	} {
		got := check(t, "", strings.Fields(args)...)
		if got.status != 2 || strings.Contains(got.stdout+got.stderr, "AbCd") || strings.Contains(got.stderr, "UvWx") {
			t.Errorf("%q: got status %d and %q", args, got.status, got.stderr)
		}
	}
}

// TestReports looks at what each report says of a broken rule, and that no
// report holds a key.
func TestReports(t *testing.T) {
	t.Parallel()
	keys := serve(t, creates, "secret-in-body", "secret-in-header", "secret-in-redirect", "secret-encoded",
		"auth-by-query", "last-byte-ignored", "idem-replay-creates")
	const some = "-run=auth/|secret/|idempotency/replay" // the others are reported as left out
	junit := filepath.Join(t.TempDir(), "contract.xml")
	var text, lines output
	var both sync.WaitGroup
	both.Go(func() { text = check(t, "GITHUB_ACTIONS=true", "-keys", keys, "-junit", junit, some) })
	both.Go(func() { lines = check(t, "", "-keys", keys, "-json", some) })
	both.Wait()
	file, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	for what, report := range map[string]string{
		"text": text.stdout + text.stderr, "JSON": lines.stdout + lines.stderr, "JUnit": string(file),
	} {
		if !strings.Contains(report, "$FULL") {
			t.Errorf("%s: no request names the key full", what)
		}
		for name, key := range reference.Keys() {
			for i := len("svc_live_"); i+10 <= len(key); i++ {
				if strings.Contains(strings.ToLower(report), strings.ToLower(key[i:i+10])) {
					t.Errorf("%s: it holds a part of the key %s", what, name)
					break
				}
			}
		}
	}

	for _, want := range []string{
		"broken    contract  idempotency/replay\n",
		"\nBroken:\n",
		"\nidempotency/replay\n    broken: after 3 repeats: GET /api/v1/tasks shows 4 resources, want 1\n",
		`request  curl -i -H "Authorization: Bearer $FULL" "http://127.0.0.1:`,
		"response 200, body ",
		"rule     A create that is repeated with the same key gets the original response and makes no second resource, " +
			"on each route. One that was refused stays refused, and makes none. (contract, section 4)",
		"hint     store status, headers and body with the key before the response is sent",
		"::error title=idempotency/replay broken::broken: after 3 repeats: GET /api/v1/tasks shows 4 resources, want " +
			"1%0A  request  curl",
	} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("the text does not hold %q", want)
		}
	}
	found := make(map[string]map[string]any)
	for line := range strings.Lines(lines.stdout) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		found[fmt.Sprint(one["rule"])] = one
	}
	if len(found) != len(rules.All()) {
		t.Errorf("got %d lines of JSON, want %d", len(found), len(rules.All()))
	}
	one := found["idempotency/replay"]
	for _, member := range []string{"level", "status", "source", "text", "detail", "request", "response", "hint"} {
		if one[member] == nil || one[member] == "" {
			t.Errorf("got %v without %s", one, member)
		}
	}

	var suite junitSuite
	if err := xml.Unmarshal(file, &suite); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for _, c := range suite.Cases {
		if c.Failure != nil {
			failures++
		}
	}
	if suite.Tests != len(rules.All()) || suite.Failures != failures || failures == 0 {
		t.Errorf("got %d tests and %d failures, of which %d are there", suite.Tests, suite.Failures, failures)
	}
}
