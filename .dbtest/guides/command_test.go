package guides_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keycli"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

var service = keystore.Service{
	Prefix: "ship",
	Scopes: scope.New(
		scope.Definition{Name: "parcels:read", Meaning: "See parcels."},
		scope.Definition{Name: "parcels:write", Meaning: "Send parcels."},
	),
	Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}, // see Digests for hashes other than SHA-256
}

// openIssuer makes the tables too, so a first key can be issued before the
// server runs.
func openIssuer(ctx context.Context, getenv func(string) string) (*issuing.Issuer, error) {
	file := getenv("KEYS")
	if file == "" {
		return nil, errors.New("KEYS is not set: give it the path of the server's database, such as parcels.db")
	}
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	store := keysql.SQLite(db, keysql.Options{})
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return issuing.New(store, issuing.Options{
		Service: service, MaxLife: 365 * 24 * time.Hour,
	}), nil
}

// The command of a service with scopes, tokens and a policy of its own. Its main
// is os.Exit(keycli.Main(keycli.Config{Open: openIssuer})).
func Example_command() {
	config, remove := command()
	defer remove()
	for _, line := range []string{
		"issue Robot -org acme -env sandbox -scopes parcel:read -expires 90d",
		"issue Robot -org acme -env sandbox -scopes parcels:read",
	} {
		config.Args = append([]string{"ship"}, strings.Fields(line)...)
		keycli.Main(config)
	}
	config.Getenv = func(string) string { return "" }
	keycli.Main(config)
	// Output:
	// ship: -scopes: There is no scope "parcel:read"; did you mean "parcels:read"?
	// ship: -expires: The key must expire within 365 days.
	// ship: KEYS is not set: give it the path of the server's database, such as parcels.db
}

// Keys of an older system, of which only SHA-256 hashes are known, from a file
// with a line of JSON for each.
func Example_import() {
	config, remove := command()
	defer remove()
	const token = "old_0123456789abcdef" // what a client holds
	file := fmt.Sprintf(`{"id":"17","organization":"acme","environment":"production","name":"Robot",
		"scopes":["parcels:read"],"created_at":"2024-02-29T12:00:00Z","legacy":"v1","digest":"%x","hint":"cdef"}`,
		sha256.Sum256([]byte(token)))

	for _, run := range []struct{ input, command string }{
		{file, "import"}, {file, "import"}, {token, "verify -scope parcels:read"},
	} {
		config.Args, config.Stdin = append([]string{"ship"}, strings.Fields(run.command)...), strings.NewReader(run.input)
		keycli.Main(config)
	}
	// Output:
	// imported: 1, there already: 0
	// imported: 0, there already: 1
	// ORGANIZATION  ID  NAME   ENVIRONMENT  TOKEN      STATUS  EXPIRES  LAST USED  SCOPES
	// acme          17  Robot  production   old_…cdef  active  -        -          parcels:read
}

// The line of JSON that the guide shows is one.
func TestImportedLine(t *testing.T) {
	guide, err := os.ReadFile("../../.github/GUIDES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(guide), "\n```json\n")
	line, _, _ = strings.Cut(line, "\n```\n")
	line = strings.Replace(line, "9f86…", fmt.Sprintf("%x", sha256.Sum256([]byte("old_0123456789abcdef"))), 1)
	config, remove := command()
	defer remove()
	var out strings.Builder
	config.Args, config.Stdin, config.Stdout = []string{"ship", "import"}, strings.NewReader(line), &out
	config.Stderr = &out
	if code := keycli.Main(config); code != 0 || !strings.Contains(out.String(), "imported: 1") {
		t.Errorf("%s: got %d, %s", line, code, &out)
	}
}

// command returns the command before a database of its own.
func command() (_ keycli.Config, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, "keys.db")
	return keycli.Config{Open: openIssuer, Getenv: func(string) string { return file }, Stderr: os.Stdout},
		func() { _ = os.RemoveAll(dir) }
}
