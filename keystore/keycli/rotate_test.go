package keycli_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// When the old key cannot be revoked, the new one works.
func TestRotateByHalf(t *testing.T) {
	s := newShell(t)
	_, old := s.issue(nightly)
	s.store = breaking(s.store, "Update", 0)
	r := s.ends(1, "the new key works, and "+old.ID+" could not be revoked", "",
		"rotate "+old.ID+" -org acme -yes -overlap 0")
	if next := s.keyOf(strings.TrimSpace(r.stdout)); next.RotatedFrom != old.ID {
		t.Errorf("got %+v", next)
	}
}

func TestRotate(t *testing.T) {
	for _, row := range []struct {
		flags string
		left  time.Duration
	}{{"", 24 * time.Hour}, {"-overlap 2d", 48 * time.Hour}, {"-overlap 90m", 90 * time.Minute}, {"-overlap 0", 0}} {
		s := newShell(t)
		token, old := s.issue(nightly)
		r := s.run(strings.NewReader(token), "rotate - -yes "+row.flags)
		secret := strings.TrimSpace(r.stdout)
		if ends := s.keyOf(token).RevokedAt.UTC().Format("2006-01-02 15:04"); r.code != 0 ||
			!strings.Contains(r.stderror, "the secret of "+old.ID+", which it replaces, expires at "+ends+" UTC") {
			t.Errorf("%s: got %d %q, want the end of the old secret, %s", row.flags, r.code, r.stderror, ends)
		}
		if next := s.keyOf(secret); next.RotatedFrom != old.ID || next.Name != "Nightly" {
			t.Errorf("%s: got %+v", row.flags, next)
		}
		if left := time.Until(s.keyOf(token).RevokedAt).Round(time.Minute); left != row.left {
			t.Errorf("%s: the old key works for %v, want %v", row.flags, left, row.left)
		}
		if r := s.ends(4, "", "", "rotate "+old.ID+" -org acme -yes"); r.stdout != "" {
			t.Errorf("%s, again: got %q, want no secret", row.flags, r.stdout)
		}
	}
}

// A key that ends is renewed, and its old secret ends when it was to.
func TestRotateUntil(t *testing.T) {
	s := newShell(t)
	token, old := s.issue(nightly + " -expires 2h")
	s.ends(2, "-expires: The expiry must lie in the future.", token, "rotate - -yes -expires 2001-01-01")
	r := s.run(strings.NewReader(token), "rotate - -yes -expires 2099-12-31")
	until := time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC)
	if next := s.keyOf(strings.TrimSpace(r.stdout)); !next.ExpiresAt.Equal(until) ||
		!strings.Contains(r.stderror, "expires at "+old.ExpiresAt.Format("2006-01-02 15:04")) {
		t.Errorf("got %+v, %q, want one until 2099 and the end of the old one at %v", next, r.stderror, old.ExpiresAt)
	}
}

// old stores keys that were made 90 days ago, of acme if they do not say
// otherwise.
func (s *shell) old(keys map[string]keystore.Key) {
	s.t.Helper()
	made := time.Now().AddDate(0, 0, -90)
	for id, k := range keys { // listed by the id, the last first
		k.ID, k.Name, k.Version = id, "the "+id, 1
		k.CreatedAt, k.Organization = cmp.Or(k.CreatedAt, made), cmp.Or(k.Organization, "acme")
		k.Environment = cmp.Or(k.Environment, keystore.Sandbox)
		k.Scopes = []scope.Name{"tasks:read"}
		k.Digest = keystore.DigestOf(id)
		if err := s.store.Insert(s.t.Context(), &k, issuing.AuditEntry{ID: id}, 0); err != nil {
			s.t.Fatal(err)
		}
	}
}

// successors returns the tokens of the file of a rotation, by the id of the key
// that each is to replace.
func successors(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	var p struct {
		Keys []struct {
			From  string `json:"rotated_from"`
			Token string
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(map[string]string)
	for _, k := range p.Keys {
		tokens[k.From] = k.Token
	}
	return tokens
}

// madeBefore is the part of a command that selects what old has stored. It is
// one day, also of a test that runs at midnight.
var (
	aMonthAgo  = day(time.Now().AddDate(0, 0, -30))
	madeBefore = " -org acme -made-before " + aMonthAgo
)

// All keys of an organization from before a time have one successor each,
// however often the command is given.
func TestRotateMadeBefore(t *testing.T) {
	s := newShell(t)
	past, ahead := time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1)
	s.old(map[string]keystore.Key{"one": {}, "two": {ExpiresAt: ahead}, "suspended": {Suspended: true},
		"rotated": {RevokedAt: ahead}, "corrupt": {Environment: "moon"},
		"revoked": {RevokedAt: past}, "expired": {ExpiresAt: past}})
	s.issue(nightly)
	s.child(&keystore.Key{ID: "one", Organization: "acme"}, "run", time.Hour)
	before := s.does("", "list -org acme -json")
	file := filepath.Join(t.TempDir(), "new.json")
	line := "rotate" + madeBefore + " -secrets " + file
	if got := s.names(line + " -dry-run"); got != "the two the one" {
		t.Errorf("-dry-run: got %q, want the active ones of then", got)
	}
	if _, err := os.Stat(file); err == nil || s.does("", "list -org acme -json") != before {
		t.Errorf("-dry-run made the file or changed a key (%v)", err)
	}
	r := s.ends(0, "2 of 2 keys are rotated; their secrets are in "+file, "", line+" -yes -overlap 2d")
	has(t, r.stderror, "left alone", "suspended", "rotated")
	tokens := successors(t, file)
	for id, token := range tokens {
		old, err := s.issuer().Key(t.Context(), "acme", id)
		if k := s.keyOf(token); err != nil || k.RotatedFrom != id || k.Refused() != nil || k.Name != "the "+id ||
			time.Until(old.RevokedAt).Round(time.Hour) != 48*time.Hour {
			t.Errorf("%s: got %+v, %v and the successor %+v", id, old, err, k)
		}
		if strings.Contains(r.stdout+r.stderror, token) {
			t.Errorf("a secret is printed: %s %s", r.stdout, r.stderror)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || len(tokens) != 2 {
		t.Errorf("got %v, %v and %d tokens, want 2 in a file that nobody else reads", info.Mode(), err, len(tokens))
	}
	after, text := s.does("", "list -org acme -json"), read(t, file)
	s.ends(0, "2 of 2 keys are rotated", "", line+" -yes -overlap 0")
	s.ends(0, `"acme" has no such key`, "", line+" -dry-run")
	s.ends(0, `"acme" has no such key`, "", line+".2 -yes")
	if got := s.does("", "list -org acme -json"); got != after || read(t, file) != text {
		t.Errorf("a repeat changed the file, or the keys from %s to %s", after, got)
	}
	// A key that is active again is told of, and gets its successor from another file.
	s.does("", "edit suspended -org acme -resume")
	r = s.ends(0, "not in the file: two suspended rotated one corrupt", "", line+" -yes")
	if strings.Contains(r.stdout, "suspended") {
		t.Errorf("got %q, want no other keys than those of the file", r.stdout)
	}
	s.ends(0, "1 of 1 keys are rotated", "", line+".2 -yes")
}

// Only the file of this very rotation is gone on with. No other is read as one,
// or written over.
func TestRotateIntoAnotherFile(t *testing.T) {
	s := newShell(t)
	s.old(map[string]keystore.Key{"one": {}, "two": {}})
	before := s.does("", "list -org acme -json")
	file := filepath.Join(t.TempDir(), "new.json")
	whole := newShell(t)
	whole.old(map[string]keystore.Key{"one": {}, "two": {}})
	whole.does("", "rotate -yes"+madeBefore+" -secrets "+file)
	text := read(t, file)
	for n := range len(text) - len("\n}\n") + 1 { // as a crash can leave it
		write(t, file, text[:n])
		s.ends(2, "or was cut off before a key was rotated", "", "rotate -yes"+madeBefore+" -secrets "+file)
		if got := read(t, file); got != text[:n] {
			t.Fatalf("got %q in the file, want %q", got, text[:n])
		}
	}
	for _, other := range []string{"secrets", "null", "{}", `["svc_test_x"]`, strings.Replace(text, "acme", "other", 1),
		strings.Replace(text, `"made_before": "2`, `"made_before": "1`, 1)} {
		write(t, file, other)
		s.ends(2, "is not the file of a rotation with this -org", "", "rotate -yes"+madeBefore+" -secrets "+file)
	}
	if err := os.Symlink(file+".none", file+".link"); err != nil {
		t.Fatal(err)
	}
	s.ends(1, "file exists", "", "rotate -yes"+madeBefore+" -secrets "+file+".link")
	s.ends(1, "no such file", "", "rotate -yes"+madeBefore+" -secrets "+filepath.Join(file+".none", "new.json"))
	s.ends(2, "must be a file of yours", "", "rotate -yes"+madeBefore+" -secrets "+filepath.Dir(file))
	if got := s.does("", "list -org acme -json"); got != before {
		t.Errorf("got the keys %s, want as before, %s", got, before)
	}
	// It is that of the rotation, so that its tokens are those of the successors.
	write(t, file, text)
	s.ends(0, "2 of 2", "", "rotate -yes"+madeBefore+" -secrets "+file)
	for id, token := range successors(t, file) {
		if got := s.keyOf(token).RotatedFrom; got != id {
			t.Errorf("got the successor of %q, want %q", got, id)
		}
	}
}

// A key that somebody else has changed meanwhile is named, and the others are
// rotated. A store that fails ends the run, and the next one goes on.
func TestRotateMeanwhile(t *testing.T) {
	s := newShell(t)
	s.old(map[string]keystore.Key{"one": {}, "two": {}, "three": {}})
	file := filepath.Join(t.TempDir(), "new.json")
	line := "rotate -yes" + madeBefore + " -secrets " + file
	store := s.store
	s.store = breaking(store, "Insert", 1)
	s.ends(1, "1 of 3 keys are rotated; a repeat goes on: the disk is full", "", line)
	s.store = breaking(store, "Update", 0)
	s.ends(1, "1 of 3 keys are rotated; a repeat goes on: the disk is full", "", line)
	s.store = store
	tokens := successors(t, file)
	last := ""
	for id, token := range tokens {
		if _, err := s.issuer().KeyOf(t.Context(), token); errors.Is(err, keystore.ErrNotFound) {
			last = id
		}
	}
	s.does("", "rotate "+last+" -org acme -yes")
	r := s.ends(4, "2 of 3 keys are rotated", "", line+" -as bob")
	has(t, r.stderror, last+" is not rotated, and its secret in "+file+" opens nothing: key was rotated before")
	for id, token := range tokens {
		old, err := s.issuer().Key(t.Context(), "acme", id)
		if err != nil || old.RevokedAt.IsZero() || id != last && s.keyOf(token).RotatedFrom != id {
			t.Errorf("%s: got %+v, %v, want it to end, and its successor in the file", id, old, err)
		}
	}
	if got := strings.Count(s.does("", "list -org acme"), "\n"); got != 7 {
		t.Errorf("got %d lines, want the title, 3 keys and a successor of each", got)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
