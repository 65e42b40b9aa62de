// Example is a server that keeps Sallyport's whole contract in memory: an
// account and tasks behind API keys, and a console that issues the keys.
//
//	go run ./example
//
// prints keys and requests to try. It ends at SIGINT or SIGTERM, once the
// requests that it has begun are answered.
//
// Read main.go, api.go (the routes and what stands before them), tasks.go
// (handlers), keys.go and console.go. The folder fleet has the service on
// databases and Redis, with metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/ratelimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	rate := flag.String("rate", "100-S",
		"`requests` of an organization's production keys, per S(econd), M, H or D; its sandbox has 25-S")
	flag.Parse()
	limit, err := ratelimit.Parse(*rate)
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, *addr, limit, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and then until what was begun is answered.
func run(ctx context.Context, addr string, rate ratelimit.Limit, out io.Writer) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + ln.Addr().String()

	keys, issuer := issuing.InMemory(keystore.Service{})
	used := keystore.NewUses(keys, keystore.UsesOptions{Interval: time.Second}) // for the console
	api, console := newAPI(keys, used, rate), newConsole(issuer, base)
	if err := announce(ctx, out, issuer, base, console.password); err != nil {
		return errors.Join(err, ln.Close())
	}
	return api.Serve(ctx, &http.Server{Handler: handler(api, console)}, ln, used.Run)
}
