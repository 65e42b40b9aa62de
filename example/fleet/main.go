// Fleet is the example as a program for evaluating a fleet: tasks behind API
// keys that it issues when it starts, on any of the stores, with metrics. In a
// clone,
//
//	go run -C example/fleet .
//
// prints the keys and requests to try, and -h all flags. It ends at SIGINT or
// SIGTERM, once the requests it has begun are answered. compose.yaml starts
// three of it with all that they need.
//
// Read main.go, then stores.go (what a fleet shares), server.go (the API and
// its routes) and tasks.go (handlers).
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func main() {
	c, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, c, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

// run is the program without the process around it: it serves until ctx ends.
func run(ctx context.Context, c config, stdout, stderr io.Writer) error {
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
	var metricsLn, gatewayLn net.Listener
	for ln, address := range map[*net.Listener]string{&metricsLn: c.metrics, &gatewayLn: c.gateway} {
		if address == "" {
			continue
		}
		if *ln, err = net.Listen("tcp", address); err != nil {
			return err
		}
		defer (*ln).Close()
	}

	cached := keystore.NewCached(s.keys, keystore.CacheOptions{Timeout: c.patience, Logger: logger})
	lastUsed := keystore.NewUses(cached, keystore.UsesOptions{Interval: 2 * time.Second, Logger: logger})
	s.keys, s.upkeep = cached, append(s.upkeep, cached.Run, lastUsed.Run)

	d := demo{BaseURL: "http://" + ln.Addr().String()}
	if d.Keys, err = issueKeys(ctx, issuing.New(cached, issuing.Options{})); err != nil {
		return err
	}
	srv, api := newServer(c, s, lastUsed, logger)
	if metricsLn != nil {
		metrics, err := serveMetrics(metricsLn, api, cached, s, logger)
		if err != nil {
			return err
		}
		defer metrics.Close()
	}
	if err := d.announce(stdout, c.keysOut); err != nil {
		return err
	}
	if gatewayLn != nil {
		defer serveGateway(gatewayLn, api.Guard().Options(), cached, stdout).Close()
	}
	return api.Serve(ctx, srv, ln, s.upkeep...) // cached.Run ends at once where no other server can change the keys
}
