// Serve runs one of the compositions as a whole server on an address of this
// machine, prints a token that it accepts, and serves until it is killed.
//
//	serve PEER ADDRESS [ADDRESS OF REDIS, or URL of Postgres]
package main

import (
	"fmt"
	"net"
	"os"
	"slices"

	bench "github.com/sallyport-go/sallyport/newest/bench"
)

func main() {
	peers := bench.Peers()
	if len(os.Args) == 4 {
		peers = append(bench.PeersOnRedis(os.Args[3]), bench.PeersOnPostgres(os.Args[3])...)
	}
	if len(os.Args) == 3 || len(os.Args) == 4 {
		for _, p := range peers {
			if p.Name == os.Args[1] {
				serve(p, os.Args[2])
				return
			}
		}
	}
	fmt.Fprintln(os.Stderr, "usage: serve PEER ADDRESS [ADDRESS OF REDIS, or URL of Postgres], where PEER is one of:")
	for _, p := range slices.Concat(bench.Peers(), bench.PeersOnRedis(""), bench.PeersOnPostgres("")) {
		fmt.Fprintln(os.Stderr, " ", p.Name)
	}
	os.Exit(2)
}

func serve(p bench.Peer, address string) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := bench.NewSetup(1)
	fmt.Println(s.Tokens[0])
	p.New(s).Serve(ln)
}
