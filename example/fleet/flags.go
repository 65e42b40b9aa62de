package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// config is what the flags ask for.
type config struct {
	addr            string
	keysOut         string // "": print the keys
	rate            ratelimit.Limit
	sandboxRate     ratelimit.Limit
	requestIDHeader string
	service         keystore.Service
	latency         time.Duration
	insecureConsole bool
	metrics         string // address; "": no metrics
	accessLog       bool

	sqlite   string // a file
	postgres string // a DSN
	pgx      bool   // Postgres is reached by pgx alone
	redis    string // a URL

	// In place of each time limit of the stores; 0 leaves them, and a test on a
	// busy machine sets more.
	patience     time.Duration
	limitsPrefix string // of the limits in Redis; "" is the default, each test has its own
}

// maxLatency leaves a create time to end before the API's own deadline for it,
// 30 s.
const maxLatency = 25 * time.Second

// A usageError is a mistake in the arguments, or several, a line each.
type usageError struct{ error }

// parseFlags returns a usageError that tells all mistakes, or flag.ErrHelp
// once the usage is on stderr.
func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("fleet", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // Parse would tell a mistake that is returned anyway
	fs.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&c.keysOut, "keys-out", "", "write the keys to this `file` as JSON instead of printing them")
	rate := fs.String("rate", "100-S",
		"`requests` of an organization's production keys together, per S(econd), M, H or D;\n"+
			"without -sandbox-rate its sandbox gets the same")
	sandboxRate := fs.String("sandbox-rate", "25-S", "`requests` of an organization's sandbox keys together")
	fs.StringVar(&c.requestIDHeader, "request-id-header", middleware.DefaultRequestIDHeader,
		"`name` of the response header that carries the request id")
	fs.StringVar(&c.service.Prefix, "key-prefix", "svc", "`prefix` of the API keys")
	latency := fs.String("latency", "0s", "`duration` that creating a task takes longer, at most "+maxLatency.String())
	fs.StringVar(&c.sqlite, "sqlite", "",
		"keep keys, tasks and replies in this SQLite `file`, which one request at a time can write to")
	fs.StringVar(&c.postgres, "postgres", "", "keep keys, tasks and replies in Postgres at this `DSN`")
	fs.BoolVar(&c.pgx, "pgx", false, "reach Postgres by pgx alone, without database/sql")
	fs.StringVar(&c.redis, "redis", "",
		"count the rates in Redis at this `URL`, and without a database keep the replies there")
	fs.StringVar(&c.metrics, "metrics", "", "serve metrics for Prometheus at this `address`, at /metrics")
	fs.BoolVar(&c.accessLog, "access-log", false, "log each request")
	fs.BoolVar(&c.insecureConsole, "insecure-demo-console", false,
		"let everybody who reaches the address issue keys: serve the console, whose\n"+
			"sign-in asks for no password, beyond this machine too and under any name")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(stderr)
		fs.Usage()
		fmt.Fprint(stderr, "\nThe keys of -postgres and -sqlite can be issued, shown and revoked from a shell, too:\n"+
			"go run github.com/sallyport-go/sallyport/keystore/cmd/sallyport@latest -h\n")
		return c, err
	} else if err != nil {
		return c, usageError{err}
	}

	var mistakes []error
	check := func(name string, err error) {
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("-%s: %w", name, err))
		}
	}
	for _, arg := range fs.Args() {
		mistakes = append(mistakes, fmt.Errorf("unexpected argument %q", arg))
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		if f.Value.String() == "" {
			check(f.Name, errors.New("it is empty; leave the flag out for the default"))
		}
	})
	if strings.Contains(c.sqlite, ":memory:") {
		check("sqlite", errors.New("each connection would have a memory of its own; leave the flag out"))
	}
	if c.sqlite != "" && c.postgres != "" {
		check("sqlite", errors.New("-postgres is given too; choose one"))
	}
	if c.pgx && c.postgres == "" {
		check("pgx", errors.New("it needs -postgres"))
	}
	_, _, err := net.SplitHostPort(c.addr)
	check("addr", err)
	if c.metrics != "" {
		_, _, err = net.SplitHostPort(c.metrics)
		check("metrics", err)
	}
	c.rate, err = ratelimit.Parse(*rate)
	check("rate", err)
	c.sandboxRate = c.rate
	if given["sandbox-rate"] || !given["rate"] {
		c.sandboxRate, err = ratelimit.Parse(*sandboxRate)
		check("sandbox-rate", err)
	}
	check("request-id-header",
		middleware.Options{RequestIDHeader: c.requestIDHeader}.Validate())
	_, err = c.service.Resolve(nil)
	check("key-prefix", err)
	c.latency, err = time.ParseDuration(*latency)
	check("latency", err)
	if c.latency < 0 || c.latency > maxLatency {
		check("latency", fmt.Errorf("%v is not between 0 and %v", c.latency, maxLatency))
	}
	if len(mistakes) > 0 {
		return c, usageError{errors.Join(mistakes...)}
	}
	return c, nil
}
