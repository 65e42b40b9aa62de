package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keycli"
)

// killAt names the variable with which the test is the command, and kills itself
// before that call of its store.
const killAt = "SALLYPORT_KILL_AT"

func TestMain(m *testing.M) {
	calls, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		os.Exit(run(m))
	}
	var db database
	code := keycli.Main(keycli.Config{Open: func(_ context.Context, getenv func(string) string) (*issuing.Issuer, error) {
		store, err := db.open(getenv, "rw")
		if err != nil {
			return nil, err
		}
		return issuing.New(&faulty.Store{Store: store, Before: func(string) error {
			if calls--; calls == 0 {
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = self.Kill()
				}
				return err
			}
			return nil
		}}, issuing.Options{}), nil
	}})
	db.close()
	os.Exit(code)
}

var buildDir string // of all tests

func run(m *testing.M) int {
	var err error
	if buildDir, err = os.MkdirTemp("", "sallyport"); err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(buildDir)
	return m.Run()
}

// A rotation of all keys that is killed at any of its steps, and again, leaves
// each key with one successor, whose secret is in the file, once it has ended.
func TestRotateIsKilled(t *testing.T) {
	built := build(t)
	directory := t.TempDir()
	keys := filepath.Join(directory, "keys.db")
	built.env = []string{"SALLYPORT_DSN=file:" + keys}
	built.does("", "migrate")
	for _, name := range []string{"one", "two", "three"} {
		built.does("", "issue", name, "-org", "acme", "-env", "sandbox", "-scopes", "tasks:read")
	}
	before := time.Now().Format(time.RFC3339Nano)
	start, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for n := 1; whole == 0; n++ {
		at := filepath.Join(directory, strconv.Itoa(n))
		if err := os.WriteFile(at+".db", start, 0o600); err != nil {
			t.Fatal(err)
		}
		c := command{t, built.file, []string{"SALLYPORT_DSN=file:" + at + ".db"}}
		rotate := []string{"rotate", "-org", "acme", "-made-before", before, "-secrets", at + ".json", "-yes"}
		for _, calls := range []int{n, n/2 + 1} {
			run := exec.Command(os.Args[0], rotate...)
			run.Env = append(c.cmd().Env, killAt+"="+strconv.Itoa(calls))
			out, err := run.CombinedOutput()
			switch {
			case err == nil && calls == n:
				whole = n
			case err != nil && run.ProcessState.Exited(): // by itself
				t.Fatalf("call %d of %d: got %v %s", calls, n, err, out)
			}
		}
		c.does("", rotate...)
		c.check(at + ".json")
		if t.Failed() {
			t.Fatalf("killed at call %d of the store", n)
		}
	}
	if whole < 17 {
		t.Errorf("a run has %d calls of the store, want at least 5 for each key", whole)
	}
}

// check reports keys that have no end or not one successor, and successors whose
// secret is not in the file.
func (c command) check(file string) {
	t := c.t
	t.Helper()
	var db database
	defer db.close()
	issuer, err := db.issuer(t.Context(), c.getenv)
	if err != nil {
		t.Fatal(err)
	}
	listing, err := issuer.Keys(t.Context(), "acme", issuing.Query{})
	text, readErr := os.ReadFile(file)
	if err := errors.Join(err, readErr); err != nil || len(listing.Keys) != 6 {
		t.Fatalf("got %d keys, %v, want 3 and their successors", len(listing.Keys), err)
	}
	var p struct {
		Keys []struct {
			From  string `json:"rotated_from"`
			Token string
		}
	}
	if err := json.Unmarshal(text, &p); err != nil || len(p.Keys) != 3 {
		t.Fatalf("got %s, %v, want 3 secrets", text, err)
	}
	for _, s := range p.Keys {
		next, err := issuer.KeyOf(t.Context(), s.Token)
		if err != nil || next.RotatedFrom != s.From || next.Refused() != nil {
			t.Errorf("got %+v, %v, want the successor of %s", next, err, s.From)
		}
		if old, err := issuer.Key(t.Context(), "acme", s.From); err != nil || old.RevokedAt.IsZero() {
			t.Errorf("got %+v, %v, want it to end", old, err)
		}
	}
}
