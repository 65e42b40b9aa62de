package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestMetrics(t *testing.T) {
	s := memoryStores()
	keys := keystore.NewCached(s.keys, keystore.CacheOptions{})
	s.keys = keys
	logger := logger(t)
	srv, api := newServer(mustParse(t), s, nil, logger)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := serveMetrics(ln, api, keys, s, logger)
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
		t.Errorf("the metrics do not have %s", counted)
	}
}
