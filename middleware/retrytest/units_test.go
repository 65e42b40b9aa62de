package retrytest_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// The units that a store has counted are an effect: those of a right handler are
// the same under each fault, or those of the route where it is uncertain. One that
// charges by itself, or says more when it is repeated, has used more.
func TestUnitsAreAnEffect(t *testing.T) {
	for _, test := range []struct {
		name   string
		charge func(ctx context.Context, store *idem.Memory, attempt int) error
		says   string
	}{
		{"right", func(ctx context.Context, _ *idem.Memory, _ int) error { return middleware.AddUnits(ctx, 2) }, ""},
		{"by itself", func(ctx context.Context, store *idem.Memory, _ int) error {
			return store.Count(ctx, idem.NewAccount("units"), 2)
		}, "twice: 9 units in place of 7"},
		{"more in a repeat", func(ctx context.Context, _ *idem.Memory, attempt int) error {
			return middleware.AddUnits(ctx, int64(2*attempt))
		}, "twice: 9 units in place of 7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, quiet := &idem.Memory{}, slog.New(slog.DiscardHandler)
			s := retrytest.Suite{Creates: planted.Parcels, Effects: map[string]func(context.Context) (int, error){
				"units": func(ctx context.Context) (int, error) {
					n, _, err := store.Used(ctx, idem.NewAccount("units"), time.Time{})
					return int(n), err
				},
			}}
			s.Server = func(p *retrytest.Process) http.Handler {
				call := p.Conn(nil)
				api := middleware.NewAPI(nil, middleware.Options{
					Authenticate: func(*http.Request) (*keystore.Caller, error) {
						return keystore.NewCaller(nil, keystore.Identity{Organization: "org_1"})
					},
					Idempotency: p.Idempotency(middleware.IdempotencyOptions{
						Runner: idem.NewRunner(store, idem.Options{Logger: quiet, Reexecute: true})}),
					Quota: middleware.QuotaOptions{Organization: &idem.Quota{Name: "monthly", Units: 1 << 40}},
					Hooks: &middleware.Hooks{Logger: quiet},
				})
				api.HandleFunc("POST /api/v1/parcels", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
					attempt := middleware.ExecutionFrom(r.Context()).Attempt()
					err := test.charge(r.Context(), store, attempt)
					if err == nil {
						err = call(r.Context(), "send", func() error { return nil }, nil)
					}
					if err != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
					io.WriteString(w, "sent")
				}, middleware.RouteOptions{Units: 5})
				return api
			}
			r := planted.Run(t, s)
			text := r.Died + strings.Join(r.Errors, "\n")
			if t.Log(r.Logs); !strings.Contains(text, test.says) || test.says == "" && text != "" {
				t.Errorf("got %q, want %q", text, test.says)
			}
		})
	}
}
