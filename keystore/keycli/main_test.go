package keycli_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keycli"
	"github.com/sallyport-go/sallyport/scope"
)

// A shell runs commands on one store.
type shell struct {
	t       *testing.T
	store   issuing.Store
	service keystore.Service
	config  keycli.Config
}

func newShell(t *testing.T) *shell {
	s := &shell{t: t, store: issuing.NewMemory(), service: keystore.Service{Scopes: registry}}
	s.config.Open = func(context.Context, func(string) string) (*issuing.Issuer, error) { return s.issuer(), nil }
	return s
}

func (s *shell) issuer() *issuing.Issuer {
	return issuing.New(s.store, issuing.Options{Service: s.service})
}

// registry has a scope that implies others.
var registry = scope.New(
	scope.Definition{Name: "tasks:read"}, scope.Definition{Name: "tasks:write"},
	scope.Definition{Name: "tasks:admin", Implies: []scope.Name{"tasks:read", "tasks:write"}},
)

// A tty is somebody at a terminal.
type tty struct{ io.Reader }

func (tty) Stat() (fs.FileInfo, error) { return os.Stat(os.DevNull) }

type result struct {
	code             int
	stdout, stderror string
}

// run runs a command line, in which a single quote begins and ends an argument
// with spaces.
func (s *shell) run(stdin io.Reader, line string) result {
	s.t.Helper()
	args := []string{"keys"}
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	var stdout, stderr strings.Builder
	config := s.config
	config.Args, config.Stdin, config.Stderr = args, stdin, &stderr
	if config.Stdout == nil {
		config.Stdout = &stdout
	}
	code := keycli.Main(config)
	return result{code, stdout.String(), stderr.String()}
}

// does runs a command that has to succeed, and returns its standard output.
func (s *shell) does(stdin, line string) string {
	s.t.Helper()
	r := s.run(strings.NewReader(stdin), line)
	if r.code != 0 {
		s.t.Fatalf("%s: exit code %d, %s", line, r.code, r.stderror)
	}
	return r.stdout
}

// ends runs a command that has to end with a code, and to say something on
// standard error: all of it, if it is a whole line.
func (s *shell) ends(code int, says, stdin, line string) result {
	s.t.Helper()
	r := s.run(strings.NewReader(stdin), line)
	whole := strings.HasSuffix(says, "\n")
	if r.code != code || !strings.Contains(r.stderror, says) || whole && r.stderror != says {
		s.t.Errorf("%s: got %d %q %q, want %d and %q", line, r.code, r.stdout, r.stderror, code, says)
	}
	return r
}

// has reports each of the texts that is not in what a command printed.
func has(t *testing.T, printed string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			t.Errorf("no %q in\n%s", text, printed)
		}
	}
}

// child makes a child of a key.
func (s *shell) child(k *keystore.Key, name string, life time.Duration) string {
	s.t.Helper()
	secret, _, err := s.issuer().Delegate(s.t.Context(), keystore.Key{Organization: k.Organization, Parent: k.ID,
		Name: name, ExpiresAt: time.Now().Add(life)})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret.Reveal()
}

// issue makes a key and returns its secret and its record.
func (s *shell) issue(line string) (string, *keystore.Key) {
	s.t.Helper()
	secret := strings.TrimSuffix(s.does("", "issue "+line), "\n")
	return secret, s.keyOf(secret)
}

func (s *shell) keyOf(secret string) *keystore.Key {
	s.t.Helper()
	k, err := s.issuer().KeyOf(s.t.Context(), secret)
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

const nightly = "Nightly -org acme -env sandbox -scopes tasks:read,tasks:write"

func TestVersion(t *testing.T) {
	s := newShell(t)
	s.config.Open = nil // needs no store
	if got := s.does("", "version"); !strings.Contains(got, "sallyport") || !strings.Contains(got, runtime.Version()) {
		t.Errorf("got %q", got)
	}
}

// A failure is an exit code and one sentence, and changes nothing.
func TestFailures(t *testing.T) {
	s := newShell(t)
	secret, k := s.issue(nightly)
	gone, goneKey := s.issue(nightly)
	s.does(gone, "revoke - -yes")
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	before := s.does("", "list -org acme -json")
	said := ofProcess(t, &os.Stderr, "")
	for _, c := range []struct {
		stdin, line string
		code        int
		says        string
	}{
		{"", "", 2, "-h lists the commands"},
		{"", "isue x", 2, `no command "isue"`},
		{"", "list -bogus", 2, "-bogus; list -h"},
		{"", "list", 2, "say whose keys with -org, or which of all"},
		{"", "list acme", 2, "usage: keys list"},
		{"", "edit", 2, "usage: keys edit ID"},
		{"", "edit -suspend -resume -org acme " + k.ID, 2, "say what to change"},
		{"", "edit " + k.ID + " -name '' -org acme", 2, "empty"},
		{"", "issue n -org acme -env sandbox -scopes tasks:read -networks ''", 2, "it is empty"},
		{"", "issue n -org acme -env sandbox -scopes tasks:read -once ''", 2, "-once is empty"},
		{"", "issue n -org acme -env sandbox -scopes tasks:read -attribute plan", 2, "name=value"},
		{"", "issue n -org acme -env sandbox -scopes tasks:read -attribute plan=", 2, "name=value"},
		{"", "issue n -org acme -env sandbox -scopes tasks:read -expires 0001-01-01", 2, "write it as"},
		{secret, "verify -scope ''", 2, "-scope is empty"},
		{secret, "verify -from ''", 2, "-from is empty"},
		{"", "migrate", 2, `no command "migrate"`},
		{"", "show " + k.ID, 2, "-org"},
		{"", "show key_none -org acme", 3, `no key "key_none"`},
		{"", "show " + k.ID + " -org other", 3, `organization "other" has no key`},
		{secret, "show - -org other", 3, `not one of organization "other"`},
		{unknown, "show -", 3, "no organization has a key"},
		{"svc_live_x", "show -", 3, "wrong length"},
		{"", "show -", 2, "standard input is empty"},
		{" \n\n", "verify", 2, "standard input is empty"},
		{secret + "\n" + gone, "revoke - -yes", 2, "several lines"},
		{strings.Repeat("a", 1<<20), "verify", 2, "too long"},
		{"", "show " + secret, 2, "give it on standard input"},
		{"", "edit " + k.ID + " -name 'the key " + secret + "' -org acme", 2, "give it on standard input"},
		{"", "issue x -org acme -env sandbox", 2, "there are: tasks:read tasks:write tasks:admin"},
		{"", "issue x -org acme -env moon -scopes tasks:read", 2, `-env: The environment must be "production" or "sandbox".`},
		{"", "issue x -org acme -scopes tasks:read", 2, `-env: The environment must be "production" or "sandbox".`},
		{"", "issue x -env sandbox -scopes tasks:read", 2, "-org: The organization is missing."},
		{"", "issue x -org acme -env sandbox -scopes task:read", 2, `-scopes: There is no scope "task:read"`},
		{"", "issue x -org acme -env sandbox -scopes tasks:read -expires 2020-01-01", 2, "-expires: The expiry"},
		{"", "issue x -org acme -env sandbox -scopes tasks:read -expires tomorrow", 2, "90d or 12h"},
		{"", "issue x -org acme -env sandbox -scopes tasks:read -expires -1ns", 2, "90d or 12h"},
		{"", "issue x -org acme -env sandbox -scopes tasks:read -networks 10.0.0.1", 2, "-networks"},
		{"", "issue x -org acme -env sandbox -scopes tasks:read -attribute =gold", 2, "-attribute: "},
		{"", "list -scope task:read -org acme", 2, `did you mean "tasks:read"?`},
		{"", "list -scope billing -org acme", 2, "there are: tasks:read"},
		{"", "rotate " + goneKey.ID + " -org acme", 4, "revoked"},
		{"", "rotate " + k.ID + " -org acme -yes -overlap 65536d", 2, "90d or 12h"},
		{"", "edit " + k.ID + " -org acme -yes", 2, "-without"},
		{"", "edit " + k.ID + " -org acme -yes -without tasks:admin", 2, "it has: tasks:read tasks:write"},
		{"", "edit " + k.ID + " -org acme -yes -without tasks:read,tasks:read", 2, "has no scope"},
		{"", "revoke -yes", 2, "which ID"},
		{"", "revoke " + k.ID + " -org acme -made-before 0d -yes", 2, "which ID"},
		{"", "revoke " + k.ID + " -org acme -dry-run -yes", 2, "-dry-run"},
		{"", "revoke " + k.ID + " -org acme -reason lost -yes", 2, `no reason "lost" for a revocation`},
		{"", "revoke -org acme -reason lost -made-before 0d -yes", 2, "there are: leaked left rotated other"},
		{"", "revoke -made-before 0d -yes", 2, "say whose keys with -org"},
		{"", "rotate -yes", 2, "which ID"},
		{"", "rotate -made-before 2020-01-01 -secrets new.json -yes", 2, "say whose keys with -org"},
		{"", "rotate -org acme -made-before 2020-01-01 -yes", 2, "-secrets"},
		{"", "rotate " + k.ID + " -org acme -made-before 2020-01-01 -secrets new.json -yes", 2, "which ID"},
		{"", "rotate " + k.ID + " -org acme -secrets new.json -yes", 2, "which ID"},
		{"", "rotate " + k.ID + " -org acme -dry-run -yes", 2, "which ID"},
		{"", "rotate -org acme -made-before 0d -secrets new.json -yes", 2, "has passed"},
		{"", "rotate -org acme -made-before 90d -secrets new.json -yes", 2, "has passed"},
		{"", "rotate -org acme -made-before 2999-01-01 -secrets new.json -yes", 2, "has passed"},
		// Nobody can be asked.
		{"", "revoke " + k.ID + " -org acme", 2, "-yes"},
		{"", "revoke -org acme -made-before 0d", 2, "-yes"},
		{"", "rotate " + k.ID + " -org acme", 2, "-yes"},
		{"", "edit " + k.ID + " -org acme -without tasks:read", 2, "-yes"},
		{"", "erase acme", 2, "-yes"},
		{"", "erase acme -org other -yes", 2, "two organizations"},
		{`{"organization":"acme"}`, "import -org other", 2, "key 1 of the input is not as import reads it: it is of another"},
	} {
		r := s.ends(c.code, c.says, c.stdin, c.line)
		if strings.Count(r.stderror, "\n") != 1 || !strings.HasPrefix(r.stderror, "keys: ") {
			t.Errorf("%s: got %q, want one line", c.line, r.stderror)
		}
		if all := r.stdout + r.stderror; strings.Contains(all, secret) || strings.Contains(all, gone) {
			t.Errorf("%s prints a token: %s", c.line, all)
		}
	}
	if text := said(); text != "" {
		t.Errorf("beside Config.Stderr it was said: %s", text)
	}
	if after := s.does("", "list -org acme -json"); after != before {
		t.Errorf("got the keys %s, want as before, %s", after, before)
	}
}

func TestHelp(t *testing.T) {
	s := newShell(t)
	s.config.Help = "The keys are in KEYS_DSN.\n"
	s.config.Open = nil // no store is asked
	s.config.Migrate = func(context.Context, func(string) string) error { return nil }
	for _, line := range []string{"-h", "help", "--help"} {
		text := s.does("", line)
		has(t, text, "Usage: keys COMMAND", "issue NAME", "edit ID", "migrate", "KEYS_DSN", "130  interrupted")
		if long := regexp.MustCompile(`.{81,}`).FindString(text); long != "" {
			t.Errorf("a line of more than 80 columns: %s", long)
		}
	}
	has(t, s.does("", "revoke -h"), "-made-before TIME", "revoke [ID]", "-yes", "history: leaked, left, rotated, other")
	// The flags of each command are shown where they do something, and are read everywhere.
	for line, want := range map[string]string{"list": "active created-by expiring json never-used org parent scope unused",
		"show": "json org", "import": "as json org reason", "version": "", "migrate": "", "verify": "from json org scope",
		"issue":  "as attribute env expires json networks once org reason scopes",
		"rotate": "as dry-run expires json made-before org overlap reason secrets yes",
		"revoke": "as dry-run json made-before org reason yes", "erase": "as json yes",
		"edit": "as expires json name networks org reason resume suspend without yes"} {
		var flags []string
		for _, m := range regexp.MustCompile(`(?m)^  -(\S+)`).FindAllStringSubmatch(s.does("", line+" -yes -as x -h"), -1) {
			flags = append(flags, m[1])
		}
		if got := strings.Join(flags, " "); got != want {
			t.Errorf("%s -h: got the flags %q, want %q", line, got, want)
		}
	}
	s.does("", "migrate")
}

// Open and Migrate are handed the environment, and what they say is one line
// without a token.
func TestOpenFails(t *testing.T) {
	s := newShell(t)
	secret, _ := s.issue(nightly)
	s.config.Getenv = func(name string) string { return "no route\nto " + name + " of " + secret }
	s.config.Open = func(_ context.Context, getenv func(string) string) (*issuing.Issuer, error) {
		return nil, errors.New(getenv("DSN"))
	}
	s.config.Migrate = func(ctx context.Context, getenv func(string) string) error {
		_, err := s.config.Open(ctx, getenv)
		return err
	}
	for _, line := range []string{"list -org acme", "migrate"} {
		s.ends(1, "keys: no route to DSN of [token]\n", "", line)
	}
}

// ofProcess puts a file in the place of one of the process, and returns what
// reads it.
func ofProcess(t *testing.T, std **os.File, text string) func() string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, text)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := *std
	*std = f
	t.Cleanup(func() { *std = old; f.Close() })
	return func() string { return read(t, name) }
}

// What a Config leaves out is the process's own.
func TestProcess(t *testing.T) {
	s := newShell(t)
	secret, k := s.issue(nightly)
	ofProcess(t, &os.Stdin, secret+"\n")
	stdout, stderr := ofProcess(t, &os.Stdout, ""), ofProcess(t, &os.Stderr, "")
	t.Setenv("KEYS_DSN", "a store")
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{"/usr/bin/keys", "verify", "-scope", "tasks:admin"}
	code := keycli.Main(keycli.Config{
		Open: func(_ context.Context, getenv func(string) string) (*issuing.Issuer, error) {
			if dsn := getenv("KEYS_DSN"); dsn != "a store" {
				t.Errorf("got KEYS_DSN %q", dsn)
			}
			return s.issuer(), nil
		},
	})
	if code != 4 || !strings.Contains(stdout(), k.ID) || !strings.HasPrefix(stderr(), "keys: refused where") {
		t.Errorf("got %d %q %q", code, stdout(), stderr())
	}
}

// A store that fails at any of its calls is exit code 1, and nothing is printed.
func TestFailingCalls(t *testing.T) {
	for _, c := range []struct{ at, line string }{
		{"Find", "show ID"}, {"Find", "rotate ID -yes"}, {"Find", "revoke ID -yes"}, {"Find", "edit ID -name Late"},
		{"Find", "edit ID -without tasks:read -yes"},
		{"Update", "edit ID -suspend"}, {"Update", "revoke ID -yes"},
		{"List", "list"}, {"List", "list -scope tasks:read"}, {"List", "revoke -made-before 0d -yes"},
		{"Audit", "show ID"}, {"Audit", "audit"}, {"Usage", "show ID"}, {"Erase", "erase acme -yes"},
	} {
		s := newShell(t)
		_, k := s.issue(nightly)
		s.store = breaking(s.store, c.at, 0)
		r := s.ends(1, "keys: the disk is full\n", "", strings.Replace(c.line, "ID", k.ID, 1)+" -org acme")
		if r.stdout != "" {
			t.Errorf("%s, when %s fails: got %q", c.line, c.at, r.stdout)
		}
	}
	s := newShell(t)
	if r := s.run(iotest.ErrReader(errors.New("the line is cut")), "verify"); r.code != 1 ||
		r.stderror != "keys: the line is cut\n" {
		t.Errorf("when standard input fails: got %d %q", r.code, r.stderror)
	}
}

// interrupt sends SIGINT to the process of the test.
func interrupt(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(os.Interrupt)
	}
	if err != nil {
		t.Error(err)
	}
}

// SIGINT ends a command that waits, be it for its input or for its store.
func TestInterrupt(t *testing.T) {
	s := newShell(t)
	in, out := io.Pipe()
	defer out.Close()
	open := s.config.Open
	for line, stuck := range map[string]bool{"verify": false, "list -org acme": true} {
		s.config.Open = func(ctx context.Context, getenv func(string) string) (*issuing.Issuer, error) {
			interrupt(t)
			if stuck {
				<-ctx.Done()
				return nil, errors.New("the driver's own words")
			}
			return open(ctx, getenv)
		}
		if r := s.run(in, line); r.code != 130 || !strings.HasPrefix(r.stderror, "keys: interrupted") ||
			strings.Count(r.stderror, "\n") != 1 {
			t.Errorf("%s: got %d %q, want 130", line, r.code, r.stderror)
		}
	}
}

// Of two operators at one moment one is refused, and nothing is half done.
func TestTwoOperators(t *testing.T) {
	s := newShell(t)
	_, k := s.issue(nightly)
	other := s.issuer()
	store := s.store
	// meanwhile does something when edit has found the key, and finds it again to
	// change it.
	meanwhile := func(act func() error) {
		finds := 0
		s.store = &faulty.Store{Store: store, Before: func(call string) error {
			if call == "Find" {
				if finds++; finds == 2 {
					return act()
				}
			}
			return nil
		}}
	}
	meanwhile(func() error { _, err := other.Revoke(t.Context(), "acme", k.ID); return err })
	s.ends(4, "changed", "", "edit "+k.ID+" -name Late -org acme")
	if got, err := other.Key(t.Context(), "acme", k.ID); err != nil || got.Name != "Nightly" || got.RevokedAt.IsZero() {
		t.Errorf("got %+v, %v, want the key revoked and not renamed", got, err)
	}
	meanwhile(func() error { _, _, err := other.Erase(t.Context(), "acme"); return err })
	s.ends(3, "", "", "edit "+k.ID+" -name Late -org acme")
}

// day is how a test writes a time of now.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
