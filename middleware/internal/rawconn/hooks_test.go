package rawconn_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
)

// TestHooksSetBefore: they are called with the connections as they were
// accepted.
func TestHooksSetBefore(t *testing.T) {
	type key struct{}
	states := make(chan string, 8)
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Context().Value(key{}).(string))
	}))
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, key{}, fmt.Sprintf("%T", c))
	}
	srv.ConnState = func(c net.Conn, s http.ConnState) { states <- fmt.Sprintf("%T %v", c, s) }
	c := dial(t, serve(t, srv))
	c.send(getRequest)
	if r := c.next("GET"); r.body != "*net.TCPConn" || r.id(t) != "own-1" {
		t.Errorf("ConnContext got a %s, the response %q", r.body, r.head)
	}
	c.Close()
	got := []string{<-states, <-states, <-states, <-states}
	want := []string{"*net.TCPConn new", "*net.TCPConn active", "*net.TCPConn idle", "*net.TCPConn closed"}
	if !slices.Equal(got, want) {
		t.Errorf("got states %q, want %q", got, want)
	}
}
