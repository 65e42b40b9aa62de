package keycli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keycli"
)

// The secret stands alone on standard output, in any form.
func TestIssue(t *testing.T) {
	s := newShell(t)
	for _, flags := range []string{"", " -json"} {
		r := s.run(nil, "issue 'Nightly import' -org acme -env production -scopes 'tasks:read tasks:write' "+
			"-networks 192.0.2.0/24,2001:db8::/32 -expires 30d -attribute plan=gold -attribute team=data -as ada"+flags)
		if r.code != 0 || !regexp.MustCompile(`^svc_live_[0-9A-Za-z]{38}\n$`).MatchString(r.stdout) {
			t.Fatalf("got %d %s %s", r.code, r.stdout, r.stderror)
		}
		secret := strings.TrimSpace(r.stdout)
		k := s.keyOf(secret)
		if k.Name != "Nightly import" || k.Organization != "acme" ||
			fmt.Sprint(k.Scopes) != "[tasks:read tasks:write]" ||
			fmt.Sprint(k.Networks) != "[192.0.2.0/24 2001:db8::/32]" ||
			fmt.Sprint(k.Attributes) != "map[plan:gold team:data]" ||
			k.CreatedBy != "ada" || time.Until(k.ExpiresAt).Round(time.Hour) != 30*24*time.Hour {
			t.Errorf("got %+v", k)
		}
		if strings.Contains(r.stderror, secret) || !strings.Contains(r.stderror, k.ID) {
			t.Errorf("standard error has to name the key and not the secret: %s", r.stderror)
		}
		var record map[string]any
		if err := json.Unmarshal([]byte(r.stderror), &record); (err == nil) != (flags != "") || err == nil &&
			record["id"] != k.ID {
			t.Errorf("%q: got %s, %v", flags, r.stderror, err)
		}
	}
}

// Whoever is logged in has done it, unless -as says who. A number stands for a
// user without a name.
func TestActorIsTheUser(t *testing.T) {
	number := fmt.Sprint("uid ", os.Getuid())
	for _, row := range []struct {
		user *user.User
		err  error
		want string
	}{
		{&user.User{Username: "ada"}, nil, "ada"}, {new(user.User), nil, number},
		{nil, user.UnknownUserIdError(os.Getuid()), number},
		{&user.User{Username: "ada"}, errors.New("no $HOME"), number},
	} {
		if got := keycli.Operator(row.user, row.err); got != row.want {
			t.Errorf("of %v, %v: got %q, want %q", row.user, row.err, got, row.want)
		}
	}
	s := newShell(t)
	_, k := s.issue(nightly)
	history, err := s.issuer().Audit(t.Context(), "acme", issuing.AuditQuery{Key: k.ID})
	want := keycli.Operator(user.Current())
	if err != nil || k.CreatedBy != want || history[0].Actor != want {
		t.Errorf("got a key by %q and the history %+v, %v, want both by %q", k.CreatedBy, history, err, want)
	}
}

func TestIssueOnce(t *testing.T) {
	s := newShell(t)
	_, k := s.issue(nightly + " -once deploy-7")
	if r := s.ends(4, k.ID, "", "issue "+nightly+" -once deploy-7"); r.stdout != "" {
		t.Errorf("got %q, want no secret", r.stdout)
	}
}

type writer func() error

func (w writer) Write([]byte) (int, error) { return 0, w() }

// full is a disk on which there is no room.
var full = writer(func() error { return errors.New("no space left on device") })

// A key whose secret is lost by Ctrl-C does not stay.
func TestSecretIsInterrupted(t *testing.T) {
	s := newShell(t)
	var ctx context.Context
	open := s.config.Open
	s.config.Open = func(c context.Context, getenv func(string) string) (*issuing.Issuer, error) {
		ctx = c
		return open(c, getenv)
	}
	s.config.Stdout = writer(func() error {
		interrupt(t)
		<-ctx.Done()
		return errors.New("broken pipe")
	})
	r := s.ends(130, "was made, and is revoked", "", "issue "+nightly)
	if !strings.HasPrefix(r.stderror, "keys: interrupted") {
		t.Errorf("got %q", r.stderror)
	}
	s.config.Stdout = nil
	if active := s.does("", "list -org acme -active"); active != "" {
		t.Errorf("got %s, want no active key", active)
	}
}

// A key whose secret is lost does not stay.
func TestSecretIsLost(t *testing.T) {
	s := newShell(t)
	_, old := s.issue(nightly)
	s.config.Stdout = full
	if r := s.ends(1, "no space left on device", "", "issue "+nightly); !strings.Contains(r.stderror, "is revoked") {
		t.Errorf("got %q, want that the key is revoked", r.stderror)
	}
	s.ends(1, "replaces "+old.ID, "", "rotate "+old.ID+" -org acme -yes")
	for _, line := range []string{"-h", "list -org acme -json", "revoke -org acme -made-before 0d -dry-run"} {
		s.ends(1, "", "", line)
	}
	failures := 1
	s.config.Stdout = writer(func() error {
		if failures--; failures == 0 {
			return errors.New("interrupted system call")
		}
		return nil
	})
	s.ends(1, "", "", "show "+old.ID+" -org acme")
	s.config.Stdout = nil
	if active := s.does("", "list -org acme -active"); strings.Count(active, "\n") != 3 {
		t.Errorf("got %s, want the key that was rotated and its successor", active)
	}
	s.store, s.config.Stdout = breaking(s.store, "Update", 0), full
	s.ends(1, "which is active: that failed too (the disk is full)", "", "issue "+nightly)
}

// Import reads what list prints, and a token or a digest with it. It can be run
// again.
func TestImport(t *testing.T) {
	from, s := newShell(t), newShell(t)
	token, parent := from.issue(nightly)
	from.child(parent, "", time.Hour) // whose number is in the list
	_, second := from.issue("Other -org acme -env sandbox -scopes tasks:read")
	record := func(extra string, lines string) string { return `{` + extra + `,` + strings.TrimPrefix(lines, `{`) }
	lines := strings.SplitAfter(from.does("", "list -org acme -json"), "\n")
	first, other := lines[1], lines[0] // the newest first
	input := record(`"token":"`+token+`"`, first)
	for _, want := range []string{`{"existing":0,"imported":1}`, `{"existing":1,"imported":0}`} {
		if got := strings.TrimSpace(s.does(input, "import -json")); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s.ends(0, "imported: 0, there already: 1\n", input, "import")
	if k := s.keyOf(token); k.Name != "Nightly" || len(k.Scopes) != 2 ||
		!k.CreatedAt.Equal(from.keyOf(token).CreatedAt) {
		t.Errorf("got %+v", k)
	}
	digest := fmt.Sprintf(`"legacy":"old","digest":"%x"`, second.Digest)
	stolen := strings.Replace(input, `"acme"`, `"other"`, 1)
	for _, c := range []struct {
		name, input string
		code        int
		says        string
	}{
		{"nothing", "", 2, `or with "legacy" and "digest"`},
		{"no JSON", "id,name\n", 2, "key 1"},
		{"the second is cut", input + `{"token":`, 2, "nothing was stored, since key 2"},
		{"the second is Latin-1", input + strings.Replace(input, `"acme"`, "\"caf\xe9\"", 1), 2,
			"key 2 of the input is not as import reads it: it is not UTF-8"},
		{"the second was Latin-1", input + strings.Replace(input, `"acme"`, `"\uD83D\uDE00\\uDCE9caf\udce9"`, 1), 2,
			"key 2 of the input is not as import reads it: it is not UTF-8"},
		{"the second has half a character", input + strings.Replace(input, `"acme"`, `"\ud83d\ud83d\ude00"`, 1), 2,
			"key 2 of the input is not as import reads it: it is not UTF-8"},
		{"U+FFFD, which is a character", strings.Replace(input, `"acme"`, `"\ufffd \\ud800 `+"\ufffd\"", 1), 4,
			"another organization has this key"},
		{"another organization, in escapes", strings.Replace(input, `"acme"`, `"\uD83D\uDE00\\uDCE9\u00e9"`, 1), 4,
			"another organization has this key"},
		{"another member", `{"secret":"x"}`, 2, `unknown field "secret"`},
		{"a token where a time belongs", `{"created_at":"` + token + `"}`, 2, "parsing time"},
		{"an old one", `{"created_at":"old_secret"}`, 2, "parsing time"},
		{"no digest", record(`"digest":"zz"`, other), 2, "64 hexadecimal digits"},
		{"a long digest", record(`"digest":"`+strings.Repeat("00", 33)+`"`, other), 2, "64 hexadecimal digits"},
		{"no such format", record(digest, other), 2, `no legacy format "old"`},
		{"no token", record(`"token":"svc_live_cut"`, other), 2, "0 of 1 keys are stored, and key 1 of the input is not: "},
		{"the second has no token", input + record(`"token":"svc_live_cut"`, other), 2, "1 of 2 keys are stored, and key 2"},
		{"of another organization", strings.Replace(stolen, `"id"`, `"rotated_from"`, 1), 4,
			"another organization has this key"},
	} {
		r := s.ends(c.code, c.says, c.input, "import")
		if strings.Contains(r.stderror, token) || strings.Contains(r.stderror, "old_secret") {
			t.Errorf("%s: got %q, which has a token", c.name, r.stderror)
		}
	}
	if got := s.does("", "list -org acme -json"); strings.Count(got, "\n") != 1 {
		t.Errorf("got %s, want the one key", got)
	}
}

func TestImportByDigest(t *testing.T) {
	s := newShell(t)
	s.service.Legacy = []keystore.LegacyFormat{{Name: "old", Prefix: "old_"}}
	token := "old_0123456789abcdef"
	s.does(fmt.Sprintf(`{"organization":"acme","environment":"sandbox","name":"x","scopes":["tasks:read"],`+
		`"legacy":"old","digest":"%x","hint":"cdef"}`,
		keystore.DigestOf(token)), "import")
	has(t, s.does(token, "verify"), "old_…cdef")
	if r := s.ends(2, "", "", "show "+token+" -org acme"); strings.Contains(r.stderror, token) {
		t.Errorf("a legacy token as an argument: got %q", r.stderror)
	}
}
