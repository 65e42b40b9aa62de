package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// With -access-log each request has a line, and is counted all the same.
func TestAccessLog(t *testing.T) {
	for _, flags := range [][]string{nil, {"-access-log"}} {
		c, err := parseFlags(flags, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		s, log := memoryStores(), new(bytes.Buffer)
		keys := keystore.NewCached(s.keys, keystore.CacheOptions{})
		s.keys = keys
		srv, api, _ := newServer(c, s, nil, nil, slog.New(slog.NewTextHandler(log, nil)))
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := serveMetrics(ln, api, keys, s, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer metrics.Close()
		srv.Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", basePath+"/account", nil))
		resp, err := http.Get("http://" + ln.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		counted := `sallyport_requests_total{method="GET",outcome="api_key_missing",route="",` +
			`sallyport_environment="",status="401"} 1`
		if !strings.Contains(string(text), counted) {
			t.Errorf("%q: the metrics do not have %s", flags, counted)
		}
		if lines := strings.Count(log.String(), "msg=request request_id="); lines != len(flags) {
			t.Errorf("%q: got %d lines: %s", flags, lines, log)
		}
	}
}
