package idem_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// newAPI returns the handler of a server. All requests are the same one.
func newAPI(s *server) http.Handler {
	api := middleware.NewAPI(nil, middleware.Options{
		Hooks: &middleware.Hooks{Logger: quiet},
		Authenticate: func(*http.Request) (*keystore.Caller, error) {
			return keystore.NewCaller(nil, keystore.Identity{Organization: request.Tenant})
		},
		Idempotency: middleware.IdempotencyOptions{Runner: s.runner, Timeout: time.Hour, FreeOn: []int{http.StatusTeapot}},
		Quota:       middleware.QuotaOptions{Organization: &idem.Quota{Name: "monthly", Units: 1 << 40}},
	})
	api.HandleFunc("POST /api/v1/things", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		text, v := s.handle(r.Context(), [32]byte{1}, middleware.ExecutionFrom(r.Context()).Attempt())
		switch v {
		case passes:
			middleware.AddUnits(r.Context(), unitsOf(text)-claimUnits)
			w.WriteHeader(http.StatusCreated)
		case refused:
			w.WriteHeader(http.StatusTeapot)
		default:
			middleware.AddUnits(r.Context(), lostUnits)
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, text)
	}, middleware.RouteOptions{Units: claimUnits})
	return api
}

// overHTTP is what a server does with a request that comes by HTTP.
func overHTTP(s *server, _ [32]byte) (string, time.Duration) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/api/v1/things", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	aborted := func() (p any) {
		defer func() { p = recover() }()
		s.api().ServeHTTP(w, r)
		return nil
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if aborted != nil || s.dead {
		return "nothing", time.Second
	}
	if w.Code == http.StatusCreated || w.Code == http.StatusTeapot {
		return w.Body.String(), 0
	}
	var problem struct{ Code string }
	json.Unmarshal(w.Body.Bytes(), &problem)
	after, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	if text := map[string]string{"idempotency_in_progress": "in progress", "idempotency_store_unavailable": "error",
		"idempotency_outcome_unknown": "unknown", "idempotency_interrupted": "nothing"}[problem.Code]; text != "" {
		return text, time.Duration(after) * time.Second
	}
	return w.Body.String(), 0
}

// Three servers, and clients that send a request again as they are told. A seed
// repeats: SALLYPORT_SEEDS=7-8 go test ./idem -run TestSimulation
func TestSimulation(t *testing.T) {
	var first, end uint64
	if _, err := fmt.Sscanf(cmp.Or(os.Getenv("SALLYPORT_SEEDS"), "0-1000"), "%d-%d", &first, &end); err != nil {
		t.Fatal(err)
	}
	for seed := first; seed < end; seed++ {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			client := []sent{{to: -1, fingerprint: [32]byte{1}}}
			w := newWorld(random.IntN, random.IntN(8), slices.Repeat([][]sent{client}, 2+random.IntN(4))...)
			w.serve = overHTTP
			w.run(t, "A", "B", "C")
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
