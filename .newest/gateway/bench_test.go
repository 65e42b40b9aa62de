package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkNginx: requests through nginx on connections kept alive, to the same
// service, with and without asking the Gateway.
func BenchmarkNginx(b *testing.B) {
	f := newFleet(b, "nginx", "", nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for name, path := range map[string]string{"alone": "/bare", "asking": "/api/v1/tasks"} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					res, err := client.Do(f.request(b, "GET", path, "read"))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode != http.StatusOK {
						b.Errorf("got %s", res.Status)
					}
				}
			})
		})
	}
}

// BenchmarkGateway: the Gateway beside a handler that says yes.
func BenchmarkGateway(b *testing.B) {
	f := newFleet(b, "nginx", "", nil)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for name, h := range map[string]http.Handler{"bare": bare, "gateway": f.gateway.Config.Handler} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/verify/tasks-read", nil)
			r.Header = f.request(b, "GET", "/", "read", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Method", "GET",
				"X-Forwarded-Uri", "/api/v1/tasks").Header
			r.RemoteAddr = "127.0.0.1:1"
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
