package console_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

var sampleText = regexp.MustCompile(`(?s)<pre id="([a-z]+)-(\d)"[^>]*>(.*?)</pre>`)

// linesOf returns the lines of the samples on a page, by language and number.
func linesOf(r reply) map[string]string {
	lines := make(map[string]string)
	for _, m := range sampleText.FindAllStringSubmatch(r.text, -1) {
		lines[m[1]+m[2]] = html.UnescapeString(m[3])
	}
	return lines
}

// A key sees the samples that it may call, in each language, without its
// secret.
func TestSamples(t *testing.T) {
	b := newBench(t, func(o *console.Options) {
		o.BaseURL = "https://api.example.com/api/v1/"
		o.Samples = []console.Sample{
			{Scope: scope.TasksRead, Method: "GET", Path: "/tasks?limit=5"},
			{Scope: scope.WebhooksWrite, Method: "POST", Path: "/webhooks", Body: `{}`},
			{Scope: scope.AccountRead, Method: "DELETE", Path: "/account"},
		}
	})
	got := b.post("/new", b.form(t))
	lines := linesOf(got)
	if len(lines) != 4 || strings.Contains(got.text, "/webhooks") {
		t.Errorf("got %d samples, want two in two languages:\n%v", len(lines), lines)
	}
	for _, want := range []string{"curl 'https://api.example.com/api/v1/tasks?limit=5'",
		`"Authorization: Bearer $SVC_API_KEY"`} {
		if !strings.Contains(lines["curl0"], want) {
			t.Errorf("the lines for curl have no %s:\n%s", want, lines["curl0"])
		}
	}
	for name, text := range lines {
		if secretShape.MatchString(text) || !strings.Contains(text, "SVC_API_KEY") {
			t.Errorf("%s has the secret, or no variable for it:\n%s", name, text)
		}
	}
	f := b.form(t)
	f["scopes"] = []string{"chat:read"}
	got = b.post("/new", f)
	secretOf(t, got)
	wantNone(t, "a key that may make none of them", got, "Try it")

	// A variable cannot begin with a digit.
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{Prefix: "3d"}})
	b = benchOf(issuer, console.Options{})
	wantText(t, "a prefix with a digit", b.post("/new", b.form(t)), 201, "D_API_KEY=3d_live_")

	b = newBench(t, func(o *console.Options) { o.BaseURL = "https://api.example.com/api/v1" })
	got = b.post("/new", b.form(t))
	wantText(t, "without samples", got, 201, "Try it", "GET /account", "curl 'https://api.example.com/api/v1/account'")
	b = newBench(t)
	got = b.post("/new", b.form(t))
	secretOf(t, got)
	wantNone(t, "without a BaseURL", got, "Try it")
}

// The lines send what the sample says, whatever stands in it.
func TestSamplesRun(t *testing.T) {
	const secret = "a 'secret' \"of\" $HOME"
	type received struct{ method, uri, auth, kind, body, key string }
	got := make(chan received, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Method, r.URL.Path + " " + fmt.Sprint(r.URL.Query()), r.Header.Get("Authorization"),
			r.Header.Get("Content-Type"), string(body), r.Header.Get("Idempotency-Key")}
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	samples := []console.Sample{
		{Scope: scope.TasksRead, Method: "POST", Path: "/it's/$HOME/%22?filter[a]=*&b=(1)!",
			Body: "{\"a\": \"it's `so` \\\"quoted\\\" $HOME \\\\ %s \\u2028 😀\",\n\t\"b\": [1e2, null]}"},
		{Scope: scope.TasksRead, Method: "GET", Path: "/tasks"},
	}
	b := newBench(t, func(o *console.Options) { o.BaseURL, o.Samples = srv.URL+"/v1", samples })
	lines := linesOf(b.post("/new", b.form(t)))
	for language, run := range map[string]struct{ file, tool, command string }{
		"curl": {"run.sh", "curl", "sh run.sh"},
		"go":   {"main.go", "go", "go run main.go"},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath(run.tool); err != nil {
				t.Skipf("left out: it needs %s", run.tool)
			}
			for i, sample := range samples {
				dir := t.TempDir()
				text := lines[fmt.Sprint(language, i)]
				if err := os.WriteFile(filepath.Join(dir, run.file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				command := exec.CommandContext(t.Context(), "sh", "-c", run.command)
				command.Dir, command.Env = dir, append(os.Environ(), "SVC_API_KEY="+secret)
				if out, err := command.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s\n%s", language, err, out, text)
					continue
				}
				want := received{sample.Method, "/v1/tasks map[]", "Bearer " + secret, "", sample.Body, ""}
				if sample.Body != "" {
					want.kind, want.uri = "application/json", `/v1/it's/$HOME/" map[b:[(1)!] filter[a]:[*]]`
				}
				if got := <-got; got != want {
					t.Errorf("%s sent\n%q, want\n%q:\n%s", language, got, want, text)
				}
			}
		})
	}
}
