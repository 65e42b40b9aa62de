package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// config is what the flags ask for.
type config struct {
	addr, metrics, gateway  string // addresses; without one for metrics or the gateway there are none
	keysOut                 string // "": print the keys
	rate, sandboxRate       ratelimit.Limit
	latency                 time.Duration
	sqlite, postgres, redis string // a file, a DSN and a URL

	patience     time.Duration // in place of each time limit of the stores, for tests
	limitsPrefix string        // of the limits in Redis, for tests
}

// parseFlags tells a mistake, and the usage, on stderr too.
func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("fleet", flag.ContinueOnError)
	fs.SetOutput(stderr)
	limit := func(l *ratelimit.Limit, name, usual, whose string) {
		*l = ratelimit.MustParse(usual)
		fs.Func(name, "`requests` of an organization's "+whose+" keys, per S(econd), M, H or D (default "+usual+")",
			func(text string) (err error) { *l, err = ratelimit.Parse(text); return err })
	}
	fs.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&c.metrics, "metrics", "", "serve metrics for Prometheus at this `address`, at /metrics")
	fs.StringVar(&c.gateway, "gateway", "", "tell nginx at this `address` whether requests to other services may pass")
	fs.StringVar(&c.keysOut, "keys-out", "", "write the keys to this `file` as JSON instead of printing them")
	limit(&c.rate, "rate", "100-S", "production")
	limit(&c.sandboxRate, "sandbox-rate", "25-S", "sandbox")
	fs.DurationVar(&c.latency, "latency", 0, "`duration` that creating a task takes longer")
	fs.StringVar(&c.sqlite, "sqlite", "",
		"keep keys, tasks and replies in this SQLite `file`, which one request at a time can write to")
	fs.StringVar(&c.postgres, "postgres", "", "keep keys, tasks and replies in Postgres at this `DSN`")
	fs.StringVar(&c.redis, "redis", "",
		"count the rates in Redis at this `URL`, and without a database keep the replies there")
	err := fs.Parse(args)
	if err != nil {
		return c, err
	}
	fs.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" && strings.Contains("postgres sqlite redis", f.Name) {
			err = fmt.Errorf("-%s is empty; leave it out for a store in memory", f.Name)
		}
	})
	switch {
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case c.sqlite != "" && c.postgres != "":
		err = errors.New("-sqlite and -postgres: choose one")
	case strings.Contains(c.sqlite, ":memory:"):
		err = errors.New("-sqlite: each connection would have a memory of its own; leave the flag out")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		fs.Usage()
	}
	return c, err
}
