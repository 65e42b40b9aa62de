// Fleet is the example as a program for evaluating a fleet: an account and
// tasks, behind API keys that it issues when it starts, on any of the stores,
// with metrics. In a clone,
//
//	go run -C example/fleet .
//
// prints the keys and requests to try, and -h all flags. It ends at SIGINT or
// SIGTERM, once the requests it has begun are answered. compose.yaml starts
// three of it with all that they need.
//
// Read main.go, then stores.go (what a fleet shares), server.go (the API and
// its routes) and tasks.go (handlers). The other files are flags, input, two
// stores of tasks, the keys of the demo and its console.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(os.Stderr, "-h shows all flags")
		os.Exit(2)
	}
	os.Exit(1)
}

// run is the program without the process around it: it serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	s, err := openStores(ctx, c, logger)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, c, s, stdout, logger), s.close())
}

// serve answers requests until ctx ends, and then until everything that was
// begun is answered and stored.
func serve(ctx context.Context, c config, s stores, stdout io.Writer, logger *slog.Logger) error {
	// Before the keys: a port that is taken must not leave keys whose secrets
	// nobody has.
	ln, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	var metricsLn net.Listener
	if c.metrics != "" {
		if metricsLn, err = net.Listen("tcp", c.metrics); err != nil {
			return err
		}
		defer metricsLn.Close()
	}

	cached := keystore.NewCached(s.keys, keystore.CacheOptions{Service: c.service, Timeout: c.patience, Logger: logger})
	lastUsed := keystore.NewUses(cached, keystore.UsesOptions{Interval: 2 * time.Second, Logger: logger})
	s.keys, s.upkeep = cached, append(s.upkeep, cached.Run, lastUsed.Run)

	issuer := issuing.New(cached, issuing.Options{Audit: func(ctx context.Context, e issuing.AuditEntry) {
		logger.InfoContext(ctx, "audit", "entry", e)
	}})
	// They are printed: the log has what people do afterwards.
	keys, err := issueKeys(ctx, issuing.New(cached, issuing.Options{}))
	if err != nil {
		return err
	}
	demo := demo{BaseURL: baseURL(ln.Addr()), Keys: keys, kept: s.inDatabase}
	var developer http.Handler
	if local := ln.Addr().(*net.TCPAddr).IP.IsLoopback(); local || c.insecureConsole {
		demo.console = demo.BaseURL + developerPath
		developer = newDeveloper(issuer, demo.BaseURL, logger)
		if !c.insecureConsole {
			developer = onLoopback(developer)
		}
	}

	srv, api, busy := newServer(c, s, developer, lastUsed, logger)
	if metricsLn != nil {
		metrics, err := serveMetrics(metricsLn, api, cached, s, logger)
		if err != nil {
			return err
		}
		defer metrics.Close()
	}
	if err := demo.announce(stdout, c.keysOut); err != nil {
		return err
	}
	say := sync.OnceFunc(func() {
		logger.Info("shutting down; a second signal ends the process at once", "requests_in_progress", busy.Load())
	})
	defer context.AfterFunc(ctx, say)()
	err = api.Serve(ctx, srv, ln, s.upkeep...) // cached.Run ends at once where no other server can change the keys
	if ctx.Err() != nil {
		say() // Serve may have ended first, and the end of the process would not wait
	}
	return err
}

// baseURL is where a client on this machine reaches a listener.
func baseURL(addr net.Addr) string {
	tcp := *addr.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		tcp.IP = net.IPv4(127, 0, 0, 1)
	}
	return "http://" + tcp.String()
}
