package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestIssuedKeys(t *testing.T) {
	store := issuing.NewMemory()
	issuer := issuing.New(store, issuing.Options{})
	for range 2 { // a second start in the same store issues five more
		keys, err := issueKeys(t.Context(), issuer)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			name, secret, organization string
			environment                keystore.Environment
			scopes                     int
		}{
			{"full", keys.Full, "org_harbour", keystore.Production, 16},
			{"sandbox", keys.Sandbox, "org_harbour", keystore.Sandbox, 16},
			{"none", keys.None, "org_harbour", keystore.Production, 0},
			{"worker", keys.Worker, "org_harbour", keystore.Production, 3},
			{"other", keys.Other, "org_lantern", keystore.Production, 16},
		} {
			k, err := store.Lookup(t.Context(), keystore.DigestOf(want.secret))
			if err != nil {
				t.Fatalf("%s: %v", want.name, err)
			}
			if k.Name != want.name || k.Organization != want.organization || k.Environment != want.environment ||
				len(k.Scopes) != want.scopes {
				t.Errorf("%s: got %s in %s, %s, with %d scopes", want.name, k.Name, k.Organization, k.Environment, len(k.Scopes))
			}
		}
		k, _ := store.Lookup(t.Context(), keystore.DigestOf(keys.Worker))
		if !reflect.DeepEqual(k.Scopes, scope.ExternalWorker()) {
			t.Errorf("worker: got scopes %v, want %v", k.Scopes, scope.ExternalWorker())
		}
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

// The keys never go to a file that somebody else has made.
func TestTheKeysFileIsAlwaysANewOne(t *testing.T) {
	want, dir := demoKeys{"f", "s", "n", "w", "o"}, t.TempDir()
	path := filepath.Join(dir, "keys.json")
	var printed strings.Builder
	if err := (demo{BaseURL: "http://127.0.0.1:1", Keys: want}).announce(&printed, path); err != nil {
		t.Fatal(err)
	}
	if got := printed.String(); got != "Listening on http://127.0.0.1:1\nKeys in "+path+"\n" {
		t.Errorf("it prints %q, want where the keys are", got)
	}
	info, err := os.Stat(path)
	base, keys := readKeys(t, path)
	if err != nil || info.Mode() != 0o600 || base != "http://127.0.0.1:1" || keys != want {
		t.Errorf("got %v %v, %s and %v", info.Mode(), err, base, keys)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path+".none", link); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{path, link, dir, filepath.Join(dir, "missing", "keys.json"), ""} {
		if err := (demo{}).write(taken); err == nil {
			t.Errorf("write(%q) succeeds", taken)
		}
	}
}
