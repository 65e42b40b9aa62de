package main

import (
	"context"
	"fmt"
	"io"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// harbour is the organization of the console's administrator.
const harbour = "org_harbour"

// announce issues keys and prints them, with requests that can be pasted into a
// shell. A secret is shown once: the store has its hash.
func announce(ctx context.Context, out io.Writer, issuer *issuing.Issuer, base, password string) error {
	fmt.Fprintf(out, "Listening on %s\nConsole at %s%s with the password %s\n\nKeys, until the server stops:\n\n",
		base, base, consolePath, password)
	all := []scope.Name{scope.AccountRead, scope.TasksRead, scope.TasksWrite, scope.TasksCancel}
	secrets := make(map[string]string)
	for _, g := range []keystore.Key{
		{Name: "full", Organization: harbour, Environment: keystore.Production, Scopes: all},
		{Name: "sandbox", Organization: harbour, Environment: keystore.Sandbox, Scopes: all},
		{Name: "worker", Organization: harbour, Environment: keystore.Production, Scopes: scope.ExternalWorker()},
		{Name: "none", Organization: harbour, Environment: keystore.Production},
		{Name: "other", Organization: "org_lantern", Environment: keystore.Production, Scopes: all},
	} {
		secret, _, err := issuer.Issue(ctx, g)
		if err != nil {
			return err
		}
		secrets[g.Name] = secret.Reveal()
		fmt.Fprintf(out, "  %-7s  %s  %s %v\n", g.Name, secret.Reveal(), g.Organization, g.Scopes)
	}
	_, err := fmt.Fprintf(out, `
Try:

  export KEY=%[1]s
  curl -i -H "Authorization: Bearer $KEY" %[3]s/api/v1/account
  curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 7f1c' -d '{"title":"Call the bank"}' %[3]s/api/v1/tasks
  curl -i -H "Authorization: Bearer $KEY" %[3]s/api/v1/tasks
  curl -i -H 'Authorization: Bearer %[2]s' %[3]s/api/v1/tasks

`, secrets["full"], secrets["none"], base)
	return err
}
