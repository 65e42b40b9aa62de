package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	if out, err := exec.Command("go", "build", "-overlay", overlayFile, "-o", binary, filepath.Dir(virtual)).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func TestTheFleetOfTheREADMECompiles(t *testing.T) {
	build(t, `package main

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {}

func createTask(*sql.Tx, http.ResponseWriter, *http.Request) {}

func fleet(ctx context.Context, db *sql.DB, client redis.UniversalClient) {
`+blocks(t, "go")[1]+`
}
`)
}

func TestTheProgramOfTheREADMERuns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	binary := build(t, strings.ReplaceAll(blocks(t, "go")[0], "127.0.0.1:8080", addr))
	cmd := exec.CommandContext(t.Context(), binary)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := make([]byte, len("svc_live_")+38)
	if _, err := io.ReadFull(stdout, line); err != nil {
		t.Fatal(err)
	}
	var resp *http.Response
	for range 200 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/api/v1/account", nil)
		r.Header.Set("Authorization", "Bearer "+string(line))
		if resp, err = http.DefaultClient.Do(r); err == nil {
			break
		}
		<-time.After(20 * time.Millisecond) // the process is about to listen
	}
	if err != nil {
		t.Fatal(err)
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

// What differs from run to run: xids and times. Equal ones get equal names, so that a replay must repeat the first response's.
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

// curl performs a command of the transcript and prints the response with those header fields that head shows.
func (srv *running) curl(t *testing.T, command string, head []string) string {
	t.Helper()
	method, body, path := http.MethodGet, "", ""
	var header []string
	args := words(strings.ReplaceAll(command, `"Authorization: Bearer $KEY"`, `'Authorization: Bearer `+srv.keys.Full+`'`))
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-i":
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header = append(header, name, value)
		case "-d":
			i++
			method, body = http.MethodPost, args[i]
		default:
			path = strings.TrimPrefix(args[i], "http://127.0.0.1:8080")
		}
	}
	if method == http.MethodPost {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded") // as curl's -d
	}
	r := srv.must(t, "", method, path, body, header...)
	lines := []string{r.Proto + " " + r.Status}
	for _, line := range head[1:] {
		name, _, _ := strings.Cut(line, ":")
		for _, value := range r.Header.Values(name) {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n") + "\n\n" + strings.TrimSpace(r.text)
}
