package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestIssuedKeys(t *testing.T) {
	store := issuing.NewMemory()
	issuer := issuing.New(store, issuing.Options{Service: keystore.Service{Prefix: "ship"}})
	var last demoKeys
	for range 2 { // a second start in the same store issues five more
		keys, err := issueKeys(t.Context(), issuer)
		if err != nil {
			t.Fatal(err)
		}
		all, none, worker := 16, 0, 3
		for _, want := range []struct {
			name, secret, before string
			organization         string
			environment          keystore.Environment
			scopes               int
		}{
			{"full", keys.Full, last.Full, "org_harbour", keystore.Production, all},
			{"sandbox", keys.Sandbox, last.Sandbox, "org_harbour", keystore.Sandbox, all},
			{"none", keys.None, last.None, "org_harbour", keystore.Production, none},
			{"worker", keys.Worker, last.Worker, "org_harbour", keystore.Production, worker},
			{"other", keys.Other, last.Other, "org_lantern", keystore.Production, all},
		} {
			k, err := store.Lookup(t.Context(), keystore.DigestOf(want.secret))
			if err != nil {
				t.Fatalf("%s: %v", want.name, err)
			}
			if k.Name != want.name || k.Organization != want.organization || k.Environment != want.environment ||
				len(k.Scopes) != want.scopes {
				t.Errorf("%s: got %s in %s, %s, with %d scopes", want.name, k.Name, k.Organization, k.Environment, len(k.Scopes))
			}
			if token, err := (keystore.Service{Prefix: "ship"}).Parse(want.secret); err != nil ||
				token.Environment != want.environment {
				t.Errorf("%s: the secret is of %v (%v), want %v", want.name, token.Environment, err, want.environment)
			}
			if want.secret == want.before {
				t.Errorf("%s: a second start issued the same secret", want.name)
			}
		}
		k, _ := store.Lookup(t.Context(), keystore.DigestOf(keys.Worker))
		if !reflect.DeepEqual(k.Scopes, scope.ExternalWorker()) {
			t.Errorf("worker: got scopes %v, want %v", k.Scopes, scope.ExternalWorker())
		}
		last = keys
	}
}

func readKeys(t *testing.T, path string) (baseURL string, keys demoKeys) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file demo
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return file.BaseURL, file.Keys
}

func TestTheKeysFileIsAlwaysANewOne(t *testing.T) {
	want := demoKeys{"f", "s", "n", "w", "o"}
	for name, prepare := range map[string]func(path, aside string) error{
		"nothing there": func(string, string) error { return nil },
		"a file all may use": func(path, _ string) error {
			return errors.Join(os.WriteFile(path, []byte("old"), 0o666), os.Chmod(path, 0o666))
		},
		"a read-only file": func(path, _ string) error { return os.WriteFile(path, []byte("old"), 0o400) },
		"a symbolic link":  func(path, aside string) error { return os.Symlink(aside, path) },
		"a dangling link":  func(path, aside string) error { return os.Symlink(aside+".none", path) },
		"a hard link":      func(path, aside string) error { return os.Link(aside, path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, aside := filepath.Join(dir, "keys.json"), filepath.Join(dir, "aside")
			if err := os.WriteFile(aside, []byte("aside"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := prepare(path, aside); err != nil {
				t.Fatal(err)
			}
			open, err := os.Open(path) // somebody who reads what stood there before
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			defer open.Close()
			before, _ := open.Stat()

			if err := (demo{BaseURL: "http://127.0.0.1:1", Keys: want}).write(path); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o600 {
				t.Errorf("got mode %v, want a regular file with 0600", info.Mode())
			}
			if before != nil && os.SameFile(info, before) {
				t.Error("the keys are in the file that stood there before")
			}
			if text, _ := os.ReadFile(aside); string(text) != "aside" {
				t.Errorf("the file aside now holds %q", text)
			}
			if base, keys := readKeys(t, path); base != "http://127.0.0.1:1" || keys != want {
				t.Errorf("got %s and %v", base, keys)
			}
			rest, _ := filepath.Glob(filepath.Join(dir, ".*"))
			if len(rest) > 0 {
				t.Errorf("left behind: %v", rest)
			}
		})
	}
}

func TestKeysThatCannotBeWrittenLeaveNothingBehind(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe") // as good as a device, which root could replace
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // where "" would have its file
	for _, path := range []string{taken, pipe, filepath.Join(dir, "missing", "keys.json"), ""} {
		if err := (demo{}).write(path); err == nil {
			t.Errorf("write(%q) succeeds", path)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v, want only the directory and the pipe", entries, err)
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the pipe is gone: %v, %v", info, err)
	}
}
