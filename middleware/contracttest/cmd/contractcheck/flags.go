package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// config is what the flags ask for.
type config struct {
	target    rules.Target
	run, skip *regexp.Regexp // nil: all, none
	json      bool
}

func (c config) wanted(name string) bool {
	return (c.run == nil || c.run.MatchString(name)) && (c.skip == nil || !c.skip.MatchString(name))
}

// parseFlags returns all mistakes, or flag.ErrHelp.
func parseFlags(args []string, stderr io.Writer) (config, error) {
	c := config{target: rules.Target{Server: true}}
	fs := flag.NewFlagSet("contractcheck", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.target.URL, "url", "", "base `URL` of the server, without /api/v1; without it the base_url of the keys")
	keys := fs.String("keys", "", "JSON `file` with {\"base_url\": …, \"keys\": {\"full\": …, \"none\": …, \"sandbox\": …, \"other\": …, \"revoked\": …}}, as\nthe example's -keys-out writes it: full has all scopes, none has none, sandbox is of the same organization, other\nof another; a key that is missing leaves rules out")
	fs.StringVar(&c.target.Read, "read", "/api/v1/account", "`path` of a GET that the full key may call")
	fs.StringVar(&c.target.Create, "create", "", "`path` of a POST that creates and whose response names what it created; without it rules are left out")
	fs.StringVar(&c.target.CreateBody, "body", "", "`body` of that POST")
	fs.StringVar(&c.target.CreateType, "type", "application/json", "media `type` of the body")
	fs.StringVar(&c.target.RequestIDHeader, "request-id-header", "Svc-Request-Id", "`name` of the header of the request id")
	roots := fs.String("cacert", "", "PEM `file` of the authority behind an https URL; without it those of the system")
	run := fs.String("run", "", "check only the rules whose name matches this `regexp`")
	skip := fs.String("skip", "", "leave out the rules whose name matches this `regexp`")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a rule, and the rest on standard error")
	err := fs.Parse(args)
	fs.SetOutput(stderr)
	if errors.Is(err, flag.ErrHelp) {
		fs.Usage()
		return c, err
	}
	mistakes := []error{err}
	for _, arg := range fs.Args() {
		mistakes = append(mistakes, fmt.Errorf("unexpected argument %q", arg))
	}
	if *keys != "" {
		mistakes = append(mistakes, readKeys(*keys, &c.target))
	}
	if c.target.URL == "" && len(mistakes) == 1 {
		mistakes = append(mistakes, errors.New("it needs -url, or -keys with a base_url"))
	}
	c.run, err = pattern("run", *run)
	mistakes = append(mistakes, err)
	c.skip, err = pattern("skip", *skip)
	mistakes = append(mistakes, err)
	if *roots != "" {
		c.target.RootCAs = x509.NewCertPool()
		if pem, err := os.ReadFile(*roots); err != nil || !c.target.RootCAs.AppendCertsFromPEM(pem) {
			mistakes = append(mistakes, errors.Join(fmt.Errorf("-cacert: no certificate in %s", *roots), err))
		}
	}
	return c, errors.Join(mistakes...)
}

func pattern(name, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("-%s: %w", name, err)
	}
	return re, nil
}

// readKeys reads the file that -keys names. Members that it does not know are left alone.
func readKeys(path string, t *rules.Target) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("-keys: %w", err)
	}
	var file struct {
		BaseURL string `json:"base_url"`
		Keys    struct{ Full, None, Sandbox, Other, Revoked string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("-keys: %s: %w", path, err)
	}
	if t.URL == "" {
		t.URL = file.BaseURL
	}
	k := file.Keys
	t.Full, t.None, t.Sandbox, t.Other, t.Revoked = k.Full, k.None, k.Sandbox, k.Other, k.Revoked
	return nil
}
