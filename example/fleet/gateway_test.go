package main

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// TestGateway: a proxy learns whether a request may pass.
func TestGateway(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := memoryStores()
	keys, err := issueKeys(t.Context(), issuing.New(s.keys, issuing.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	_, api := newServer(mustParse(t), s, nil, logger(t))
	defer serveGateway(ln, api.Guard().Options(), s.keys, io.Discard).Close()
	srv := &running{base: "http://" + ln.Addr().String(), client: http.DefaultClient}
	for _, path := range []string{"/verify/tasks-read", "/verify/tasks-write"} {
		got := srv.must(t, keys.Full, "GET", path, "", "X-Forwarded-For", "192.0.2.1")
		if got.StatusCode != http.StatusOK || got.Header.Get("Svc-Caller-Signature") == "" {
			t.Errorf("%s: got %s %v %s, want 200", path, got.Status, got.Header, got.text)
		}
	}
	got := srv.must(t, "", "GET", "/verify/tasks-read", "", "X-Forwarded-For", "192.0.2.1")
	if got.StatusCode != http.StatusUnauthorized || got.Header.Get("Svc-Refusal-Status") != "401" {
		t.Errorf("without a key: got %s %v", got.Status, got.Header)
	}
}
