package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sallyport-go/sallyport/.ci/testlib/curl"
)

// read returns the text of a file.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages are the README and those of .github.
func pages(t *testing.T) []string {
	t.Helper()
	all, _ := filepath.Glob("../.github/*.md")
	if len(all) < 8 {
		t.Fatalf("found %d pages", len(all))
	}
	return append(all, "../README.md")
}

// blocks returns the README's fenced blocks of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var all []string
	for rest := range strings.SplitSeq("\n"+read(t, "../README.md"), "\n```"+language+"\n") {
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
	source, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay"), filepath.Join(dir, "program")
	virtual, err := filepath.Abs("../readmeprogram/main.go")
	if err != nil {
		t.Fatal(err)
	}
	replace, _ := json.Marshal(map[string]any{"Replace": map[string]string{virtual: source}})
	for file, text := range map[string]string{source: program, overlay: string(replace)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, filepath.Dir(virtual)).CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// The program and the lines for a service that exists answer the same.
func TestTheProgramsOfTheREADMERun(t *testing.T) {
	lines, program := blocks(t, "go")[0], blocks(t, "go")[1]
	t.Run("program", func(t *testing.T) { mustAnswer(t, program) })
	t.Run("service", func(t *testing.T) {
		setup, rest, ok := strings.Cut(program, "\tapi := ")
		_, handler, ok2 := strings.Cut(rest, `middleware.Require("tasks:write"), `)
		handler, _, ok3 := strings.Cut(handler, "\n\t})\n")
		if !ok || !ok2 || !ok3 {
			t.Fatal("the program has no api, or no handler")
		}
		mustAnswer(t, setup+`
	var tasks atomic.Int64
	createTask := `+handler+`
	}
	mux, server := http.NewServeMux(), &http.Server{Addr: "127.0.0.1:8080"}
	`+lines+`
	log.Fatal(server.ListenAndServe())
}`)
	})
}

// mustAnswer wants of a program what the README's transcript has.
func mustAnswer(t *testing.T, program string) {
	want := blocks(t, "console")[0]
	addr, key := runProgram(t, program)
	for addr == "" { // somebody else got the port between the test and the program
		addr, key = runProgram(t, program)
	}
	var got []string
	for exchange := range strings.SplitSeq(want, "\n\n$ ") {
		command, response, _ := strings.Cut(strings.TrimPrefix(exchange, "$ "), "\n")
		head, _, _ := strings.Cut(response, "\n\n")
		sent := strings.ReplaceAll(command, "127.0.0.1:8080", addr)
		got = append(got, "$ "+command+"\n"+answer(t, sent, key, strings.Split(head, "\n")))
	}
	if g, w := masked(strings.Join(got, "\n\n")), masked(strings.TrimSpace(want)); g != w {
		t.Errorf("the README's transcript is not what happens.\ngot:\n%s\n\nwant:\n%s", g, w)
	}
	said := answer(t, "curl -i -d title=Call http://"+addr+"/api/v1/tasks", "", []string{""})
	if !strings.HasPrefix(said, "HTTP/1.1 401 Unauthorized") {
		t.Errorf("without the key: got %s, want 401", said)
	}
}

// runProgram starts the program on a port that was free, and returns the address and
// the key that it prints. addr is empty if the program could not have the port.
func runProgram(t *testing.T, program string) (addr, key string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
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
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return addr, key
		}
		select {
		case <-ended:
			if !strings.Contains(stderr.String(), "address already in use") {
				t.Fatalf("the program ended: %s", &stderr)
			}
			return "", ""
		case <-time.After(20 * time.Millisecond): // it is about to listen
		}
	}
}

// What differs from run to run: request ids. Equal ones get equal names, so
// that a replay must repeat the first response's.
var variable = regexp.MustCompile(`\b[0-9a-v]{20}\b`)

func masked(text string) string {
	names := map[string]string{}
	return variable.ReplaceAllStringFunc(text, func(s string) string {
		if names[s] == "" {
			names[s] = "«" + string(rune('a'+len(names))) + "»"
		}
		return names[s]
	})
}

// answer performs a command of the transcript and prints the response with those
// header fields that head shows.
func answer(t *testing.T, command, key string, head []string) string {
	t.Helper()
	r, err := curl.Request(command, key)
	if err != nil {
		t.Fatal(err)
	}
	got := do(t, client, r)
	lines := []string{got.Proto + " " + got.Status}
	for _, line := range head[1:] {
		name, _, _ := strings.Cut(line, ":")
		for _, value := range got.Header.Values(name) {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n") + "\n\n" + strings.TrimSpace(got.text)
}

// What an importer builds beside our modules. The adapters bring no driver of
// a database along, but for idempgx.
func TestTheModulesOfTheREADME(t *testing.T) {
	const four = "github.com/hashicorp/golang-lru/v2 github.com/pkg/errors github.com/rs/xid github.com/ulule/limiter/v3"
	for _, test := range []struct{ pkg, want string }{
		{"middleware", four},
		{"example", four},
		{"keystore/keysql", "github.com/hashicorp/golang-lru/v2 github.com/rs/xid"},
		{"idem/idemsql", "golang.org/x/sync"},
		{"idem/idempgx", "github.com/jackc/pgpassfile github.com/jackc/pgservicefile github.com/jackc/pgx/v5 " +
			"github.com/jackc/puddle/v2 golang.org/x/sync golang.org/x/text"},
	} {
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
		list.Dir = "../" + test.pkg // which may be a module of its own
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		modules := slices.DeleteFunc(strings.Fields(string(out)), func(module string) bool {
			return strings.HasPrefix(module, "github.com/sallyport-go/")
		})
		slices.Sort(modules)
		if got := strings.Join(slices.Compact(modules), " "); got != test.want {
			t.Errorf("%s builds %s, want %s", test.pkg, got, test.want)
		}
	}
}

// Whoever adds to a page takes as much out of it.
func TestThePagesAreShort(t *testing.T) {
	words := 0
	for _, page := range pages(t) {
		text := read(t, page)
		n := len(strings.Fields(text))
		if words += n; n > 1000 && page == "../README.md" {
			t.Errorf("the README has %d words, want at most 1000", n)
		}
		for line := range strings.Lines(text) {
			if len(line) > 300 {
				t.Errorf("%s has a line of %d bytes: %.60s…", page, len(line), line)
			}
		}
	}
	if words > 13800 {
		t.Errorf("the pages have %d words, want at most 13800", words)
	}
}

var (
	link = regexp.MustCompile(`(?:\]\(|src(?:set)?=")([^"):#]*)(?:#([^)]*))?["\)]`)
	head = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// What the README and the pages link to is there, to the heading.
func TestTheLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, to := range link.FindAllStringSubmatch(read(t, page), -1) {
			file, anchor := filepath.Join(filepath.Dir(page), to[1]), to[2]
			if to[1] == "" {
				file = page
			}
			target, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil || anchor != "" && !slices.Contains(anchors(target), anchor) {
				t.Errorf("%s links to %s", page, to[0])
			}
		}
	}
}

// anchors are what GitHub calls the headings of a page.
func anchors(page []byte) (all []string) {
	for _, heading := range head.FindAllSubmatch(page, -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, string(heading[1])))
	}
	return all
}
