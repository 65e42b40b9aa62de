package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// blocks returns the README's fenced blocks of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rest := range strings.SplitSeq("\n"+string(text), "\n```"+language+"\n") {
		body, _, _ := strings.Cut(rest, "\n```\n")
		all = append(all, body)
	}
	if len(all) == 1 {
		t.Fatalf("the README has no block of %q", language)
	}
	return all[1:]
}

// build compiles a program inside this module without a file in the tree.
func build(t *testing.T, program string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	virtual, err := filepath.Abs("../readmeprogram/main.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{virtual: source}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlayFile, "-o", binary,
		filepath.Dir(virtual)).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func TestTheFleetOfTheREADMECompiles(t *testing.T) {
	build(t, `package main

import (
	"context"
	"database/sql"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

func main() {}

func fleet(ctx context.Context, db *sql.DB, client redis.UniversalClient) {
`+blocks(t, "go")[1]+`
	_, _ = replies, counters
}
`)
}

func TestTheProgramOfTheREADMERuns(t *testing.T) {
	program := blocks(t, "go")[0]
	resp := ask(t, program)
	for resp == nil { // somebody else got the port between the test and the program
		resp = ask(t, program)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if got, want := resp.Status+" "+string(body), "200 OK org_1 in production\n"; got != want {
		t.Errorf("GET /api/v1/account: got %q, want %q", got, want)
	}
	if len(resp.Header.Values("Svc-Request-Id")) != 1 {
		t.Errorf("got header %v, want one Svc-Request-Id", resp.Header)
	}
}

// ask starts the program on a port that was free and asks for the account. It
// returns nil if the program could not have the port.
func ask(t *testing.T, program string) *http.Response {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	cmd := exec.CommandContext(t.Context(), build(t, strings.ReplaceAll(program, "127.0.0.1:8080", addr)))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	key, printed := strings.CutPrefix(strings.TrimSpace(line), "export KEY=")
	if !printed {
		t.Fatalf("the program printed %q first, want export KEY=…", line)
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, lines)
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/api/v1/account", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			return resp
		}
		select {
		case <-ended:
			if !strings.Contains(stderr.String(), "address already in use") {
				t.Fatalf("the program ended: %s", &stderr)
			}
			return nil
		case <-time.After(20 * time.Millisecond): // it is about to listen
		}
	}
}

// A reader may paste what the README shows or what the example prints.
func TestTheExamplePrintsTheCommandsOfTheREADME(t *testing.T) {
	var out strings.Builder
	d := demo{BaseURL: "http://127.0.0.1:8080", Keys: demoKeys{Full: "svc_live_full"}}
	if err := d.announce(&out, ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"export KEY=svc_live_full"}
	for line := range strings.Lines(blocks(t, "console")[0]) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			want = append(want, strings.TrimSpace(command))
		}
	}
	for _, line := range want {
		if !strings.Contains(out.String(), "\n  "+line+"\n") {
			t.Errorf("the example does not print the line %s, but\n%s", line, &out)
		}
	}
}

// What differs from run to run: xids and times. Equal ones get equal names, so
// that a replay must repeat the first response's.
var variable = regexp.MustCompile(`\b(task_)?[0-9a-v]{20}\b|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

func masked(text string) string {
	names := map[string]string{}
	return variable.ReplaceAllStringFunc(text, func(s string) string {
		if names[s] == "" {
			names[s] = "«" + string(rune('a'+len(names))) + "»"
		}
		return names[s]
	})
}

func TestTheTranscriptOfTheREADME(t *testing.T) {
	srv := start(t)
	want := blocks(t, "console")[0]
	var got strings.Builder
	for exchange := range strings.SplitSeq(want, "\n\n$ ") {
		command, response, _ := strings.Cut(strings.TrimPrefix(exchange, "$ "), "\n")
		head, _, _ := strings.Cut(response, "\n\n")
		if got.Len() > 0 {
			got.WriteString("\n\n")
		}
		got.WriteString("$ " + command + "\n" + srv.curl(t, command, strings.Split(head, "\n")))
	}
	if g, w := masked(got.String()), masked(strings.TrimSpace(want)); g != w {
		t.Errorf("the README's transcript is not what happens.\ngot:\n%s\n\nwant:\n%s", g, w)
	}
}

// curl performs a command of the transcript and prints the response with those
// header fields that head shows.
func (srv *running) curl(t *testing.T, command string, head []string) string {
	t.Helper()
	method, target, body, header := curl(command, srv.keys.Full)
	r := srv.must(t, "", method, strings.TrimPrefix(target, "http://127.0.0.1:8080"), body, header...)
	lines := []string{r.Proto + " " + r.Status}
	for _, line := range head[1:] {
		name, _, _ := strings.Cut(line, ":")
		for _, value := range r.Header.Values(name) {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n") + "\n\n" + strings.TrimSpace(r.text)
}

// What an importer builds beside this module. The adapters bring no driver of
// a database along.
func TestTheModulesOfTheREADME(t *testing.T) {
	const four = "github.com/hashicorp/golang-lru/v2 github.com/pkg/errors github.com/rs/xid github.com/ulule/limiter/v3"
	for _, test := range []struct{ pkg, want string }{
		{"middleware", four},
		{"keystore/keysql", "github.com/hashicorp/golang-lru/v2 github.com/rs/xid"},
		{"idem/idemsql", "golang.org/x/sync"},
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}",
			"../"+test.pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		modules := strings.Fields(string(out))
		slices.Sort(modules)
		if got := strings.Join(slices.Compact(modules), " "); got != test.want {
			t.Errorf("%s builds %s, want %s", test.pkg, got, test.want)
		}
	}
}

// The table of the stages names files that exist.
func TestTheFilesOfTheREADME(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## The path of a request\n")
	table, _, _ = strings.Cut(table, "\n## ")
	files := regexp.MustCompile(`[a-z]+\.go`).FindAllString(table, -1)
	for _, file := range files {
		if _, err := os.Stat("../middleware/" + file); err != nil {
			t.Error(err)
		}
	}
	if len(files) < 10 {
		t.Errorf("found %d files only", len(files))
	}
}
