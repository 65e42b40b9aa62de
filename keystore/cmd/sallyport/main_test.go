package main

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A command is the built program and where its keys are.
type command struct {
	t    *testing.T
	file string
	env  []string
}

// program is what the first test that needs it has built.
var program string

func build(t *testing.T) command {
	t.Helper()
	if program == "" {
		file := filepath.Join(buildDir, "sallyport.exe")
		if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		program = file
	}
	return command{t, program, nil}
}

// run returns standard output and error, and the exit code.
func (c command) run(stdin string, args ...string) (stdout, stderror string, code int) {
	c.t.Helper()
	cmd := c.cmd(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			c.t.Fatal(err)
		}
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// does runs a command that has to succeed, and returns its standard output.
func (c command) does(stdin string, args ...string) string {
	c.t.Helper()
	out, text, code := c.run(stdin, args...)
	if code != 0 {
		c.t.Fatalf("%v: got %d %s", args, code, text)
	}
	return out
}

func (c command) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command(c.file, args...)
	cmd.Env = append(os.Environ(), "SALLYPORT_DSN=", "SALLYPORT_DSN_FILE=")
	cmd.Env = append(cmd.Env, c.env...)
	return cmd
}

// The first key of an empty database, its life and its end.
func TestOnEachDatabase(t *testing.T) {
	built := build(t)
	if out, text, code := (command{t, built.file, nil}).run("", "version"); code != 0 ||
		!strings.Contains(out, "github.com/sallyport-go/sallyport/keystore/cmd/sallyport ") ||
		!strings.Contains(out, "\ngithub.com/sallyport-go/sallyport ") {
		t.Errorf("version: got %d %q %q", code, out, text)
	}
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "file:" + sqltest.SQLite(t) },
		"postgres": func(t *testing.T) string {
			schema := pgtest.Schema(t).RuntimeParams["search_path"]
			dsn, err := url.Parse(servers.Postgres.Address(t))
			if err != nil {
				t.Fatal(err)
			}
			query := dsn.Query()
			query.Set("search_path", schema)
			dsn.RawQuery = query.Encode()
			return dsn.String()
		},
		"mariadb": func(t *testing.T) string { return sqltest.MariaDB(t).FormatDSN() },
	} {
		t.Run(name, func(t *testing.T) {
			c := command{t, built.file, []string{"SALLYPORT_DSN=" + dsn(t)}}
			if _, text, code := c.run("", "list", "-org", "acme"); code != 1 ||
				!strings.Contains(text, "which migrate makes") {
				t.Errorf("without tables: got %d %q", code, text)
			}
			does := c.does
			does("", "migrate")
			does("", "migrate")
			token := does("", "issue", "Nightly import", "-org", "acme", "-env", "sandbox", "-scopes", "tasks:read,tasks:write")
			does(token, "verify", "-scope", "tasks:write")
			if list := does("", "list", "-org", "acme", "-never-used"); strings.Count(list, "\n") != 2 {
				t.Errorf("got %s", list)
			}
			does("", "issue", "Second", "-org", "other", "-env", "sandbox", "-scopes", "tasks:read")
			all := []string{"rotate", "-org", "other", "-made-before", time.Now().Format(time.RFC3339Nano), "-secrets",
				filepath.Join(t.TempDir(), "new.json"), "-yes"}
			for range 2 {
				does("", all...)
			}
			if list := does("", "list", "-org", "other"); strings.Count(list, "\n") != 3 {
				t.Errorf("got %s, want the key and its successor", list)
			}
			next := does(token, "rotate", "-", "-overlap", "0", "-yes")
			does(next, "edit", "-", "-suspend")
			if _, text, code := c.run(next, "verify"); code != 4 || !strings.Contains(text, "suspended") {
				t.Errorf("got %d %s", code, text)
			}
			does(next, "revoke", "-", "-yes", "-reason", "leaked", "-as", "ada")
			if story := does(next, "show", "-"); !strings.Contains(story, "by ada: leaked") {
				t.Errorf("got %s", story)
			}
			if got := does("", "erase", "acme", "-yes", "-json"); !strings.Contains(got, `"keys":2}`) {
				t.Errorf("got %s, want 2 keys and no replies", got)
			}
			c.reply()
			if got := does("", "erase", "acme", "-yes", "-json"); !strings.Contains(got, `"keys":0,"replies":1`) {
				t.Errorf("got %s, want the reply", got)
			}
		})
	}
}

// getenv reads a variable as the program does.
func (c command) getenv(name string) string {
	dsn, found := strings.CutPrefix(c.env[0], name+"=")
	if !found {
		return ""
	}
	return dsn
}

// reply stores a claim of organization acme beside the keys.
func (c command) reply() {
	c.t.Helper()
	var d database
	defer d.close()
	if _, err := d.open(c.getenv, "rw"); err != nil {
		c.t.Fatal(err)
	}
	store := d.withReplies(d.db, idemsql.Options{})
	if err := store.Migrate(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	request := idem.Claim{Key: idem.NewKey("acme"), Tenant: "acme"}
	if _, _, err := idem.NewRunner(store, idem.Options{}).Begin(c.t.Context(), request, nil); err != nil {
		c.t.Fatal(err)
	}
}

// The commands of the operator's guide work as they stand there.
func TestTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../.github/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	directory, c := t.TempDir(), build(t)
	if err := os.Link(c.file, filepath.Join(directory, "sallyport")); err != nil {
		t.Fatal(err)
	}
	// section runs the first block of one, and then more.
	section := func(title, more, stdin string) string {
		t.Helper()
		_, text, _ := strings.Cut(string(guide), title+"\n")
		_, text, _ = strings.Cut(text, "\n```sh\n")
		text, _, _ = strings.Cut(text, "\n```\n")
		text = strings.Replace(text, "go install", ": go install", 1)
		cmd := exec.Command("bash", "-ec", "export SALLYPORT_DSN='file:keys.db'\n"+text+"\n"+more)
		cmd.Dir, cmd.Stdin = directory, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "PATH="+directory+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil {
			exit, _ := errors.AsType[*exec.ExitError](err)
			t.Fatalf("%s: %v %s", title, err, exit.Stderr)
		}
		return string(out)
	}
	first := section("## The first key from a shell", `echo "$KEY"`, "")
	lines := strings.Split(strings.TrimSpace(first), "\n")
	token := lines[len(lines)-1]
	if !strings.Contains(first, "active") || !strings.HasPrefix(token, "svc_test_") {
		t.Errorf("got %s", first)
	}
	if shown := section("### A leaked key", "", token+"\n"); !strings.Contains(shown, "Nightly import") ||
		strings.Contains(shown, token) {
		t.Errorf("got %s", shown)
	}
	c.env = []string{"SALLYPORT_DSN=file:" + filepath.Join(directory, "keys.db")}
	if _, text, code := c.run(token, "verify"); code != 4 || !strings.Contains(text, "revoked") {
		t.Errorf("got %d %s, want the key revoked", code, text)
	}
	// Each command in a sentence or a table is one, with flags that it has.
	commands := regexp.MustCompile("`sallyport ([^`-]+ [^`]+)`").FindAllStringSubmatch(string(guide), -1)
	for _, command := range commands {
		args := strings.Fields(command[1])
		if _, text, code := c.run("", args...); code != 0 && code != 3 && !strings.Contains(text, "-yes") {
			t.Errorf("%s: got %d %s", command[1], code, text)
		}
	}
	if len(commands) < 6 {
		t.Errorf("found %d commands", len(commands))
	}
}

// A database that is not there is one sentence, and no password.
func TestUnreachable(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "none.db")
	file := filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(file, []byte("postgres://u:hunter2@127.0.0.1:1/db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := build(t)
	for _, row := range []struct{ env, says string }{
		{"", "set either SALLYPORT_DSN or SALLYPORT_DSN_FILE"},
		{"SALLYPORT_DSN_FILE=" + file + ".none", "no such file"},
		{"SALLYPORT_DSN_FILE=postgres://u:hunter2@127.0.0.1:1/db", "no such file"},
		{"SALLYPORT_DSN_FILE=" + file, "does not answer"},
		{"SALLYPORT_DSN=postgres://u:hunter2@127.0.0.1:1/db", "does not answer"},
		{"SALLYPORT_DSN=postgres://u:hunter2%@127.0.0.1:1/db", "not one that Postgres takes"},
		{"SALLYPORT_DSN=postgres://u:/hunter2@127.0.0.1:1/db", "not one that Postgres takes"},
		{"SALLYPORT_DSN=postgres://u@127.0.0.1:1/db?password=hunter2&sslmode=none", "not one that Postgres takes"},
		{"SALLYPORT_DSN=postgres://u@127.0.0.1:1/db?password=hunter2", "does not answer"},
		{"SALLYPORT_DSN=u:hunter2@tcp(127.0.0.1:1)/db", "does not answer"},
		{"SALLYPORT_DSN=u@tcp(127.0.0.1:1)/db?password=hunter2", "behind the user"},
		{"SALLYPORT_DSN=u:hunter2@tcp(127.0.0.1:1)", "none of Postgres"},
		{"SALLYPORT_DSN=u:hunter2(tcp(127.0.0.1:1))/db", "none of Postgres"},
		{"SALLYPORT_DSN=hunter2", "none of Postgres"},
		{"SALLYPORT_DSN=file:" + nowhere, "unable to open database file"},
	} {
		c.env = []string{row.env}
		out, text, code := c.run("", "list", "-org", "acme")
		if code != 1 || out != "" || !strings.Contains(text, row.says) || strings.Count(text, "\n") != 1 ||
			strings.Contains(text, "hunter2") {
			t.Errorf("%s: got %d %q %q, want 1 and %q", row.env, code, out, text, row.says)
		}
	}
	if _, err := os.Stat(nowhere); err == nil {
		t.Error("list has made a database")
	}
}

// What a server of MySQL quotes may be the password.
func TestRefusedByMariaDB(t *testing.T) {
	config, c := sqltest.MariaDB(t), build(t)
	const refuses = "refuses what the DSN says of user, password, database or parameters: error 1"
	for _, row := range []struct {
		change func(*mysql.Config)
		says   string
	}{
		{func(o *mysql.Config) { o.User += "=hunter2" }, ""}, // a server for tests may take every user
		{func(o *mysql.Config) { o.DBName += ":hunter2" }, refuses},
		{func(o *mysql.Config) { o.Params = map[string]string{"p:word": "hunter2"} }, refuses},
	} {
		o := config.Clone()
		row.change(o)
		c.env = []string{"SALLYPORT_DSN=" + o.FormatDSN()}
		if _, text, code := c.run("", "list", "-org", "acme"); code != 1 || strings.Contains(text, "hunter2") ||
			!strings.Contains(text, row.says) {
			t.Errorf("%s: got %d %q, want 1 and %q", c.env, code, text, row.says)
		}
	}
}

// Ctrl-C ends a command whose database takes the connection and says nothing.
func TestInterrupt(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := build(t)
	c.env = []string{"SALLYPORT_DSN=postgres://u:hunter2@" + silent.Addr().String() + "/db"}
	cmd := c.cmd("list", "-org", "acme")
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || strings.Count(text.String(), "\n") != 1 ||
		!strings.HasPrefix(text.String(), "sallyport") {
		t.Errorf("got %d %q, want 130 and one line", code, text.String())
	}
}
