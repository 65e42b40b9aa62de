package keycli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestSuspendResumeRename(t *testing.T) {
	s := newShell(t)
	token, k := s.issue(nightly)
	at := k.ID + " -org acme"
	for _, c := range []struct {
		line      string
		suspended bool
		name      string
		says      string
	}{
		{"edit -suspend " + at, true, "Nightly", "is changed, and is suspended\n"},
		{"edit -suspend " + at, true, "Nightly", "is changed, and is suspended\n"},
		{"edit " + at + " -name 'Every hour'", true, "Every hour", "Every hour” of acme is changed"},
		{"edit -resume -org acme " + k.ID, false, "Every hour", "is changed, and is active\n"},
		{"edit -resume " + at + " -json", false, "Every hour", `"name":"Every hour"`},
	} {
		if r := s.run(nil, c.line); r.code != 0 || !strings.Contains(r.stdout+r.stderror, c.says) {
			t.Errorf("%s: got %d %q %q, want %q", c.line, r.code, r.stdout, r.stderror, c.says)
		}
		if got := s.keyOf(token); got.Suspended != c.suspended || got.Name != c.name {
			t.Errorf("%s: got %+v", c.line, got)
		}
	}
}

func TestEdit(t *testing.T) {
	s := newShell(t)
	token, k := s.issue(nightly + " -networks 192.0.2.0/24 -expires 30d")
	s.does("", "edit "+k.ID+" -org acme -yes -without tasks:write -networks 192.0.2.128/25")
	s.does("", "edit "+k.ID+" -org acme -yes -expires 1d")
	got := s.keyOf(token)
	if fmt.Sprint(got.Scopes) != "[tasks:read]" || fmt.Sprint(got.Networks) != "[192.0.2.128/25]" ||
		time.Until(got.ExpiresAt) > 25*time.Hour {
		t.Errorf("got %+v", got)
	}
	for _, more := range []string{"-networks 192.0.2.0/24", "-expires 30d"} {
		if r := s.ends(2, "", "", "edit "+k.ID+" -org acme -yes "+more); strings.Count(r.stderror, "\n") != 1 {
			t.Errorf("%s: got %q, want one line: a key may only do less", more, r.stderror)
		}
	}
	s.does("", "edit "+k.ID+" -org acme -yes -without tasks:read")
	if got := s.keyOf(token); len(got.Scopes) > 0 || got.Refused() != nil {
		t.Errorf("without its last scope: got %+v, want a live key", got)
	}
}

// What cannot be undone is done after the answer that is asked for, and no
// other.
func TestConfirm(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, stdin := range []*os.File{plain, nil} { // nil cannot be asked what it is
		if r := newShell(t).run(stdin, "erase acme"); r.code != 2 || !strings.Contains(r.stderror, "no terminal") {
			t.Errorf("got %d %q, want that nobody can be asked", r.code, r.stderror)
		}
	}
	for _, c := range []struct{ line, asks, answer string }{
		{"revoke ID -org acme", " of acme for good?", "yes"},
		{"rotate ID -org acme", " of acme, whose secret works for 24h0m0s more?", "yes"},
		{"rotate ID -org acme -overlap 0", " of acme, whose secret works for 0s more?", "yes"},
		{"edit ID -org acme -without tasks:write -expires 2099-12-31",
			" of acme the scopes [tasks:read], the networks [] and the expiry 2099-12-31 00:00?", "yes"},
		{"revoke -org acme -made-before 0d", "these 1 keys of acme for good?", "yes"},
		{"rotate -org acme -made-before NOW -secrets FILE",
			"these 1 keys of acme, whose secrets work for 24h0m0s more?", "yes"},
		{"erase acme", "all keys of acme, their history and its replies?", "acme"},
	} {
		s := newShell(t)
		token, k := s.issue(nightly)
		line := strings.NewReplacer("ID", k.ID, "NOW", time.Now().Format(time.RFC3339Nano), "FILE",
			filepath.Join(t.TempDir(), "new.json")).Replace(c.line)
		for _, answer := range []string{"", "\n", "no\n", "y\n", "ACME\n"} {
			r := s.run(tty{strings.NewReader(answer)}, line)
			if r.code != 4 || !strings.Contains(r.stderror, "nothing was changed; -yes does it") ||
				!strings.Contains(r.stderror, c.asks) {
				t.Errorf("%s, %q: got %d %q, want 4 and %q", line, answer, r.code, r.stderror, c.asks)
			}
		}
		if got := s.keyOf(token); got.Version != k.Version {
			t.Errorf("%s: the key was changed", line)
		}
		if r := s.run(tty{strings.NewReader(c.answer + "\n")}, line); r.code != 0 {
			t.Errorf("%s, %q: got %d %q", line, c.answer, r.code, r.stderror)
		}
		if got, err := s.issuer().KeyOf(t.Context(), token); err == nil && got.Version == k.Version {
			t.Errorf("%s: the key is as before", line)
		}
	}
}

// Token and answer come from the same terminal.
func TestRevokeByToken(t *testing.T) {
	s := newShell(t)
	token, _ := s.issue(nightly)
	if r := s.run(tty{strings.NewReader(token + "\nyes\n")}, "revoke - -reason leaked -as ada"); r.code != 0 ||
		strings.Contains(r.stderror, token) || !strings.Contains(r.stderror, "is revoked; servers notice within") {
		t.Fatalf("got %d %q", r.code, r.stderror)
	}
	k := s.keyOf(token)
	if !errors.Is(k.Refused(), keystore.ErrRevoked) {
		t.Errorf("got %v, want revoked", k.Refused())
	}
	has(t, s.does(token, "show -"), "by ada: leaked")
	// Again is no failure, and changes nothing.
	s.ends(0, "revoked before", token, "revoke -")
	if again := s.keyOf(token); !again.RevokedAt.Equal(k.RevokedAt) {
		t.Errorf("got %v, want %v", again.RevokedAt, k.RevokedAt)
	}
}

func TestRevokeMadeBefore(t *testing.T) {
	s := newShell(t)
	now := time.Now()
	past, ahead := now.AddDate(0, 0, -1), now.AddDate(0, 0, 1)
	s.old(map[string]keystore.Key{"old": {}, "suspended": {Suspended: true}, "expired": {ExpiresAt: past},
		"revoked": {RevokedAt: past}, "rotated": {RevokedAt: ahead}, "new": {CreatedAt: now},
		"foreign": {Organization: "other"}})
	const want = "the suspended the rotated the old"
	if got := s.names("revoke" + madeBefore + " -dry-run"); got != want {
		t.Errorf("-dry-run: got %q, want %q", got, want)
	}
	if active := s.names("list -org acme -active"); active != "the new the rotated the old" {
		t.Errorf("after -dry-run: got %q active", active)
	}
	store := s.store
	s.store = breaking(store, "Update", 2)
	s.ends(1, "2 of 3 keys are revoked: the disk is full", "", "revoke -org acme -made-before 30d -yes -json")
	s.store = store
	if got := s.names("list -org acme -unused 60d"); got != "the old" {
		t.Errorf("got %q unused, want old", got)
	}
	for _, says := range []string{"1 keys are revoked\n", `organization "acme" has no such key`} {
		if r := s.ends(0, says, "", "revoke -org acme -made-before 60d -yes"); strings.Contains(r.stderror, "0 keys") {
			t.Errorf("got %q, want %q", r.stderror, says)
		}
	}
	if active := s.names("list -org acme -active"); active != "the new" {
		t.Errorf("got %q active", active)
	}
	if active := s.names("list -org other -active"); active != "the foreign" {
		t.Errorf("of another organization: got %q active", active)
	}
}

// breaking returns a store in which a method fails after some calls.
func breaking(store issuing.Store, method string, after int) issuing.Store {
	return &faulty.Store{Store: store, Before: func(call string) error {
		if call == method {
			if after--; after < 0 {
				return errors.New("the disk is full")
			}
		}
		return nil
	}}
}

func TestErase(t *testing.T) {
	s := newShell(t)
	s.issue(nightly)
	token, _ := s.issue(nightly)
	kept, _ := s.issue(strings.Replace(nightly, "acme", "other", 1))
	if got := strings.TrimSpace(s.does("", "erase acme -yes -json")); got != `{"entries":2,"keys":2}` {
		t.Errorf("got %s", got)
	}
	if _, err := s.issuer().KeyOf(t.Context(), token); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("got %v, want no key", err)
	}
	s.keyOf(kept)
	s.ends(0, "no replies here", "", "erase acme -yes")
	erased := regexp.MustCompile(`^erase +\S+ \S+ +acme +- +- +by \S+; keys "0", was "2"; entries "0", was "2"\n$`)
	if got := s.does("", "audit -org acme"); !erased.MatchString(got) {
		t.Errorf("afterwards audit prints %q, want the first erasure", got)
	}
}

// Replies go after the keys, and a store that fails is asked again.
func TestEraseReplies(t *testing.T) {
	s := newShell(t)
	s.issue(nightly)
	down := errors.New("the disk is full")
	replies := &replyStore{err: down}
	open := down
	s.config.Replies = func(context.Context, func(string) string) (idem.Eraser, error) { return replies, open }
	for _, c := range []struct {
		code int
		says string
	}{
		{1, "keys: the disk is full\n"},
		{1, "1 keys of acme and 1 entries of their history are removed, but not all replies; erase again: the disk is full"},
		{0, "0 keys of acme and 0 entries of their history are removed, and 3 replies; erase again when"},
	} {
		s.ends(c.code, c.says, "", "erase acme -yes")
		if open == nil {
			replies.err = nil
		}
		open = nil
	}
	if got := strings.TrimSpace(s.does("", "erase acme -yes -json")); got != `{"entries":0,"keys":0,"replies":3}` {
		t.Errorf("got %s", got)
	}
}

type replyStore struct {
	idem.Store
	err error
}

func (r *replyStore) Erase(_ context.Context, owner string) (int, error) {
	if owner != "acme" {
		return 0, errors.New("another owner")
	}
	return 3, r.err
}
