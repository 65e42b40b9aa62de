// Example is a server that keeps Sallyport's whole contract: an account and
// tasks, behind API keys that it issues when it starts.
//
//	go run ./example
//
// prints the keys and requests to try. It ends at SIGINT or SIGTERM, once the
// requests it has begun are answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// drainTimeout is longer than a handler can run.
const drainTimeout = 40 * time.Second

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
	cached := keystore.NewCached(s.keys, keystore.CacheOptions{Service: c.service, Timeout: c.patience, Logger: logger})
	if s.durable {
		// Other servers may revoke a key in the same database.
		s.upkeep = append(s.upkeep, cached.Run)
	}
	s.keys = cached
	lastUsed := keystore.NewLastUsed(cached, keystore.LastUsedOptions{Interval: 2 * time.Second, Logger: logger})
	s.upkeep = append(s.upkeep, lastUsed.Run)
	issuer := keystore.NewIssuer(cached, keystore.IssuerOptions{})
	keys, err := issueKeys(ctx, issuer)
	if err != nil {
		return err
	}
	upkeep, stopUpkeep := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stopUpkeep()
	for _, f := range s.upkeep {
		running.Go(func() { _ = f(upkeep) })
	}
	base := baseURL(ln.Addr())
	developer, consoleURL := mountDeveloper(c, ln.Addr(), issuer, logger)
	srv, api, busy := newServer(c, s, developer, lastUsed, logger)
	ended := make(chan error, 1)
	withIDs := middleware.RequestIDListener(srv, ln, api.Options())
	go func() { ended <- srv.Serve(withIDs) }()
	if err := announce(stdout, c.keysOut, base, consoleURL, keys, s.durable); err != nil {
		return errors.Join(err, srv.Close())
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	logger.Info("shutting down; a second signal ends the process at once", "requests_in_progress", busy.Load())
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err = srv.Shutdown(drain)
	return errors.Join(err, api.WaitSettled(drain), srv.Close())
}

// announce tells the keys, and where they are good, now that the server can be
// reached.
func announce(stdout io.Writer, keysOut, baseURL, consoleURL string, keys demoKeys, durable bool) error {
	if keysOut == "" {
		until := "until the server stops"
		if durable {
			until = "beside those of earlier starts"
		}
		fmt.Fprintf(stdout, "Listening on %s\n%s\n\nKeys, %s:\n\n", baseURL, consoleLine(consoleURL), until)
		return printKeys(stdout, baseURL, keys)
	}
	if err := writeKeys(keysOut, baseURL, keys); err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	_, err := fmt.Fprintf(stdout, "Listening on %s\n%s\nKeys in %s\n", baseURL, consoleLine(consoleURL), keysOut)
	return err
}

// baseURL is where a client on this machine reaches a listener.
func baseURL(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr)
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}
