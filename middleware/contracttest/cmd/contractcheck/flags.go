package main

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// config is what the flags ask for.
type config struct {
	target                              rules.Target
	run, skip                           *regexp.Regexp // nil: all, none
	timeout                             time.Duration  // 0: by the server's speed
	strict, advice, json, github, rules bool
	junit                               string
}

func (c config) wanted(r rules.Rule) bool {
	return (c.run == nil || c.run.MatchString(r.Name)) && (c.skip == nil || !c.skip.MatchString(r.Name))
}

// parseFlags returns all mistakes, or flag.ErrHelp.
func parseFlags(args []string, getenv func(string) string, stdin io.Reader, stderr io.Writer) (config, error) {
	var c config
	var given rules.Target // by flags, which count more than the keys file
	fs := flag.NewFlagSet("contractcheck", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&given.URL, "url", "",
		"base `URL` of the server, without /api/v1; without it the base_url of the keys file")
	keys := fs.String("keys", "",
		"JSON `file` with the keys and what else describes the server, - for standard input; "+
			"the names of\nkeys are "+strings.Join(rules.KeyNames(), ", "))
	fs.StringVar(&given.Base, "base", "", "`path` that all routes begin with (default /api/v1)")
	fs.StringVar(&given.Read, "read", "",
		"`path` of a GET that asks for a scope, which the full key has (default /api/v1/account)")
	fs.Func("create", "`path` of a POST that creates; a second one is a second route", func(path string) error {
		given.Creates = append(given.Creates, rules.Create{Path: path})
		return nil
	})
	ofCreate := func(name, usage string, field func(*rules.Create) *string) {
		fs.Func(name, usage, func(value string) error {
			if len(given.Creates) == 0 {
				return errors.New("it belongs to a -create, which has to stand before it")
			}
			*field(&given.Creates[len(given.Creates)-1]) = value
			return nil
		})
	}
	ofCreate("body", "`body` of the last -create, with {{random}}, {{uuid}} or {{number}} for what must be unique",
		func(c *rules.Create) *string { return &c.Body })
	ofCreate("type", "media `type` of the body of the last -create (default application/json)",
		func(c *rules.Create) *string { return &c.Type })
	ofCreate("list", "`path` of a GET that shows what the last -create creates",
		func(c *rules.Create) *string { return &c.List })
	usage := "`names` of what the server does not offer, with commas between: rules that need it are left out"
	fs.Func("without", usage, func(names string) error {
		comma := func(c rune) bool { return c == ',' || c == ' ' }
		given.Without = append(given.Without, strings.FieldsFunc(names, comma)...)
		return nil
	})
	fs.StringVar(&given.RequestIDHeader, "request-id-header", "",
		"`name` of the header of the request id (default Svc-Request-Id)")
	roots := fs.String("cacert", "", "PEM `file` of the authority behind an https URL; without it those of the system")
	run := fs.String("run", "", "check only the rules whose name matches this `regexp`")
	skip := fs.String("skip", "", "leave out the rules whose name matches this `regexp`")
	fs.BoolVar(&c.strict, "strict", inCI(getenv("CI")),
		"take a contract rule that could not be checked for a failure; the default with CI=true")
	fs.BoolVar(&c.advice, "advice", false, "take broken advice for a failure")
	fs.BoolVar(&given.Wire, "wire", false,
		"check also what the HTTP server answers without its program, which no stock server keeps")
	fs.DurationVar(&c.timeout, "timeout", 0, "`duration` of the whole check (default by the server's speed)")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a rule, and the rest on standard error")
	fs.StringVar(&c.junit, "junit", "", "write a JUnit report to this `file`")
	fs.BoolVar(&c.github, "github", getenv("GITHUB_ACTIONS") == "true",
		"print annotations for GitHub Actions; the default there")
	fs.BoolVar(&c.rules, "rules", false, "list the rules with their sources and do nothing else")
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
	if c.rules {
		return c, errors.Join(mistakes...)
	}
	if *keys == "" && err == nil {
		mistakes = append(mistakes, errors.New("it needs -keys: without a key nothing can be looked at"))
	}
	if *keys != "" {
		c.target, err = readKeys(*keys, stdin)
		mistakes = append(mistakes, err)
	}
	c.target.URL = cmp.Or(given.URL, c.target.URL)
	c.target.Base = cmp.Or(given.Base, c.target.Base)
	c.target.Read = cmp.Or(given.Read, c.target.Read)
	c.target.RequestIDHeader = cmp.Or(given.RequestIDHeader, c.target.RequestIDHeader)
	if given.Creates != nil {
		c.target.Creates = given.Creates
	}
	c.target.Without = append(c.target.Without, given.Without...)
	c.target.Wire = given.Wire
	if c.target.URL == "" && errors.Join(mistakes...) == nil {
		mistakes = append(mistakes, errors.New("it needs -url, or a base_url in the keys file"))
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

// inCI reports whether the value of CI says yes. Services write true, True, 1
// or their own name.
func inCI(value string) bool {
	yes, err := strconv.ParseBool(value)
	return value != "" && (err != nil || yes)
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

// readKeys reads the file that -keys names. A member that it does not know is
// a mistake: a misspelt key would leave rules out in silence.
func readKeys(path string, stdin io.Reader) (t rules.Target, err error) {
	var text []byte
	if path == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return t, fmt.Errorf("-keys: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return t, fmt.Errorf("-keys: %s: %s", path, strings.TrimPrefix(err.Error(), "json: "))
	}
	if decoder.More() {
		return t, fmt.Errorf("-keys: %s holds more than one JSON value", path)
	}
	return t, nil
}
