package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// The organizations that the five keys belong to. They are fixed, so that with
// a store that survives a restart the new keys find the old tasks, and the old
// keys still work.
const (
	harbour = "org_harbour"
	lantern = "org_lantern"
)

// starter is kept as the creator of the keys that a start issues.
const starter = "example"

// A demo is what a start tells, in this form if it goes to a file.
type demo struct {
	BaseURL string   `json:"base_url"`
	Keys    demoKeys `json:"keys"`

	console string // its URL; "": there is none
	kept    bool   // the keys of earlier starts work too
}

// demoKeys are the secrets of the five keys that each start issues.
type demoKeys struct {
	Full    string `json:"full"`    // all scopes, production
	Sandbox string `json:"sandbox"` // all scopes, the same organization's sandbox
	None    string `json:"none"`    // no scope
	Worker  string `json:"worker"`  // the external worker's three scopes
	Other   string `json:"other"`   // all scopes, in a second organization
}

func issueKeys(ctx context.Context, issuer *issuing.Issuer) (demoKeys, error) {
	var all []scope.Name
	for _, d := range scope.Default().Definitions() {
		all = append(all, d.Name)
	}
	var keys demoKeys
	for _, k := range []struct {
		secret             *string
		name, organization string
		environment        keystore.Environment
		scopes             []scope.Name
	}{
		{&keys.Full, "full", harbour, keystore.Production, all},
		{&keys.Sandbox, "sandbox", harbour, keystore.Sandbox, all},
		{&keys.None, "none", harbour, keystore.Production, nil},
		{&keys.Worker, "worker", harbour, keystore.Production, scope.ExternalWorker()},
		{&keys.Other, "other", lantern, keystore.Production, all},
	} {
		secret, _, err := issuer.By(starter, "").Issue(ctx, keystore.Key{Organization: k.organization, Name: k.name,
			Environment: k.environment, Scopes: k.scopes})
		if err != nil {
			return demoKeys{}, fmt.Errorf("issue the key %q: %w", k.name, err)
		}
		*k.secret = secret.Reveal()
	}
	return keys, nil
}

// write puts the keys into a file that only its owner can read. It is
// always a new file, renamed into place: what stood under that name, with its
// mode, its links and whoever has it open, gets none of the secrets.
func (d demo) write(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("%s is there and is not a file", path)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// announce tells the keys, and where they are good, once the server can be
// reached: in a file, or on stdout with requests that can be pasted into a
// shell.
func (d demo) announce(stdout io.Writer, keysOut string) error {
	aboutConsole := "Console at " + d.console + " (a demo: its sign-in asks for no password)"
	if d.console == "" {
		aboutConsole = "No console: its sign-in asks for no password, so it is served on a loopback address only"
	}
	if keysOut != "" {
		if err := d.write(keysOut); err != nil {
			return fmt.Errorf("write the keys: %w", err)
		}
		_, err := fmt.Fprintf(stdout, "Listening on %s\n%s\nKeys in %s\n", d.BaseURL, aboutConsole, keysOut)
		return err
	}
	until := "until the server stops"
	if d.kept {
		until = "beside those of earlier starts"
	}
	_, err := fmt.Fprintf(stdout, `Listening on %[1]s
%[9]s

Keys, %[10]s:

  full     %[2]s  all scopes, %[7]s
  sandbox  %[3]s  all scopes, %[7]s's sandbox
  none     %[4]s  no scope, %[7]s
  worker   %[5]s  the external worker's scopes, %[7]s
  other    %[6]s  all scopes, %[8]s

Try:

  export KEY=%[2]s
  curl -i -H "Authorization: Bearer $KEY" %[1]s/api/v1/account
  curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 7f1c' -d '{"title":"Call the bank"}' %[1]s/api/v1/tasks
  curl -i -H "Authorization: Bearer $KEY" '%[1]s/api/v1/tasks?limit=10'
  curl -i -H 'Authorization: Bearer %[4]s' %[1]s/api/v1/tasks

`, d.BaseURL, d.Keys.Full, d.Keys.Sandbox, d.Keys.None, d.Keys.Worker, d.Keys.Other, harbour, lantern, aboutConsole,
		until)
	return err
}
