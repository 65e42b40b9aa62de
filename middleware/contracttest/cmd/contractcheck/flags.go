package main

import (
	"bytes"
	"cmp"
	"crypto/x509"
	_ "embed"
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

// usage describes the flags.
//
//go:embed usage.txt
var usage string

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
	fs.StringVar(&given.URL, "url", "", "")
	keys := fs.String("keys", "", "")
	fs.StringVar(&given.Base, "base", "", "")
	fs.StringVar(&given.Read, "read", "", "")
	fs.Func("create", "", func(path string) error {
		given.Creates = append(given.Creates, rules.Create{Path: path})
		return nil
	})
	ofCreate := func(name string, field func(*rules.Create) *string) {
		fs.Func(name, "", func(value string) error {
			if len(given.Creates) == 0 {
				return errors.New("it belongs to a -create, which has to stand before it")
			}
			*field(&given.Creates[len(given.Creates)-1]) = value
			return nil
		})
	}
	ofCreate("body", func(c *rules.Create) *string { return &c.Body })
	ofCreate("type", func(c *rules.Create) *string { return &c.Type })
	ofCreate("list", func(c *rules.Create) *string { return &c.List })
	fs.Func("without", "", func(names string) error {
		comma := func(c rune) bool { return c == ',' || c == ' ' }
		given.Without = append(given.Without, strings.FieldsFunc(names, comma)...)
		return nil
	})
	fs.StringVar(&given.RequestIDHeader, "request-id-header", "", "")
	roots := fs.String("cacert", "", "")
	run := fs.String("run", "", "")
	skip := fs.String("skip", "", "")
	fs.BoolVar(&c.strict, "strict", inCI(getenv("CI")), "")
	fs.BoolVar(&c.advice, "advice", false, "")
	fs.BoolVar(&given.Wire, "wire", false, "")
	fs.StringVar(&given.Profile, "profile", "", "")
	fs.DurationVar(&c.timeout, "timeout", 0, "")
	fs.BoolVar(&c.json, "json", false, "")
	fs.StringVar(&c.junit, "junit", "", "")
	fs.BoolVar(&c.github, "github", getenv("GITHUB_ACTIONS") == "true", "")
	fs.BoolVar(&c.rules, "rules", false, "")
	fs.Usage = func() {}
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, usage)
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
	c.target.Profile = cmp.Or(given.Profile, c.target.Profile)
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
