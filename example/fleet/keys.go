package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// The organizations that the keys belong to. They are fixed, so that with a
// store that survives a restart the new keys find the old tasks.
const harbour, lantern = "org_harbour", "org_lantern"

// A demo is what a start tells, in this form if it goes to a file.
type demo struct {
	BaseURL string   `json:"base_url"`
	Keys    demoKeys `json:"keys"`
}

// demoKeys are the secrets of the five keys that each start issues.
type demoKeys struct{ Full, Sandbox, None, Worker, Other string }

func issueKeys(ctx context.Context, issuer *issuing.Issuer) (keys demoKeys, err error) {
	var all []scope.Name
	for _, d := range scope.Default().Definitions() {
		all = append(all, d.Name)
	}
	issue := func(name, organization string, environment keystore.Environment, scopes ...scope.Name) string {
		secret, _, failed := issuer.By("fleet", "").Issue(ctx,
			keystore.Key{Organization: organization, Name: name, Environment: environment, Scopes: scopes})
		err = errors.Join(err, failed)
		return secret.Reveal()
	}
	return demoKeys{
		Full:    issue("full", harbour, keystore.Production, all...),
		Sandbox: issue("sandbox", harbour, keystore.Sandbox, all...),
		None:    issue("none", harbour, keystore.Production),
		Worker:  issue("worker", harbour, keystore.Production, scope.ExternalWorker()...),
		Other:   issue("other", lantern, keystore.Production, all...),
	}, err
}

// write puts the keys into a new file that only its owner can read.
func (d demo) write(path string) error {
	text, _ := json.MarshalIndent(d, "", "  ") // of strings
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// announce tells the keys, and where they are good, once the server can be
// reached: in a file, or on stdout with requests that can be pasted into a
// shell.
func (d demo) announce(stdout io.Writer, keysOut string) error {
	if keysOut != "" {
		if err := d.write(keysOut); err != nil {
			return fmt.Errorf("write the keys: %w", err)
		}
		_, err := fmt.Fprintf(stdout, "Listening on %s\nKeys in %s\n", d.BaseURL, keysOut)
		return err
	}
	_, err := fmt.Fprintf(stdout, `Listening on %[1]s

Keys:

  full     %[2]s  all scopes
  sandbox  %[3]s  all scopes, the same organization's sandbox
  none     %[4]s  no scope
  worker   %[5]s  the external worker's scopes
  other    %[6]s  all scopes, another organization

Try:

  export KEY=%[2]s
  curl -i -H "Authorization: Bearer $KEY" %[1]s/api/v1/account
  curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 7f1c' -d '{"title":"Call the bank"}' %[1]s/api/v1/tasks
  curl -i -H "Authorization: Bearer $KEY" %[1]s/api/v1/tasks
  curl -i -H 'Authorization: Bearer %[4]s' %[1]s/api/v1/tasks

`, d.BaseURL, d.Keys.Full, d.Keys.Sandbox, d.Keys.None, d.Keys.Worker, d.Keys.Other)
	return err
}
