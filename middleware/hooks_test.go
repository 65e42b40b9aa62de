package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestHooksOfTheOutermost: a stage without hooks uses those of the stage
// outside it, and one with hooks of its own uses these.
func TestHooksOfTheOutermost(t *testing.T) {
	outer, inner := newLogged(), newLogged()
	misplaced := func(o *middleware.Hooks) http.Handler {
		return middleware.New(nil, middleware.Options{Hooks: o}).AnyKey(http.HandlerFunc(sayOK))
	}
	id := middleware.New(nil, middleware.Options{Hooks: outer.hooks()}).RequestID
	serve(id(misplaced(nil)), request("GET", "/", "", ""))
	if !strings.Contains(outer.String(), "no Authenticate") {
		t.Errorf("got the outer log %q", outer)
	}
	serve(id(misplaced(inner.hooks())), request("GET", "/", "", ""))
	if !strings.Contains(inner.String(), "no Authenticate") || strings.Count(outer.String(), "\n") != 1 {
		t.Errorf("got the inner log %q, the outer %q", inner, outer)
	}
}

// TestOutageLines: one line a second, which counts those left out.
func TestOutageLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLogged()
		api := testAPI(lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("down") }), middleware.Options{Hooks: log.hooks()})
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		for _, wait := range []time.Duration{0, 0, time.Second - 1, 1, time.Second} {
			time.Sleep(wait) // in the bubble
			serve(api, request("GET", "/api/v1/any", token, ""))
		}
		var unlogged []string
		for _, line := range strings.Split(log.String(), "unlogged=")[1:] {
			unlogged = append(unlogged, line[:1])
		}
		if got := strings.Join(unlogged, " "); got != "0 2 0" {
			t.Errorf("got lines that count %q, want \"0 2 0\"", got)
		}
	})
}

// TestAccessLog: one line for each response, with what is there to be told.
func TestAccessLog(t *testing.T) {
	user := by(t, "user_1")
	for _, tt := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{RequestID: "r1", Method: "GET", Pattern: "GET /x", Path: "/x", ClientIP: netip.MustParseAddr("192.0.2.9"), Agent: "curl/8", Status: 200, Bytes: 2, Duration: time.Millisecond, Principal: user, Stage: "handler", Outcome: "handled"},
			`level=INFO msg=request request_id=r1 method=GET pattern="GET /x" path=/x status=200 bytes=2 duration=1ms caller.subject=user_1 caller.organization=org_1 caller.environment=production stage=handler outcome=handled client=192.0.2.9 agent=curl/8`},
		{middleware.Event{Status: 499, Stage: "scope"}, `level=INFO msg=request request_id="" method="" pattern="" path="" status=499 bytes=0 duration=0s caller.subject="" caller.organization="" caller.environment="" stage=scope outcome="" client="" agent=""`},
		{middleware.Event{Status: 500}, `level=ERROR`},
		{middleware.Event{Status: 200, Aborted: true}, `level=ERROR * aborted=true`},
		{middleware.Event{Policy: "organization", Limit: 9, Remaining: 3}, `* policy=organization limit=9 remaining=3`},
		{middleware.Event{RefusedKey: "key_1"}, `* refused_key=key_1`},
		{middleware.Event{Problem: "name_taken"}, `* problem=name_taken`},
		{middleware.Event{Waited: time.Second}, `* waited=1s`},
		{middleware.Event{Reported: "rate_limited"}, `* reported=rate_limited`},
	} {
		log := newLogged()
		middleware.AccessLog(log.hooks().Logger)(t.Context(), tt.event)
		line := log.String()
		start, end, cut := strings.Cut(tt.want, "* ")
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, start) || cut && !strings.HasSuffix(line, " "+end+"\n") || !cut && strings.Contains(line, "aborted") {
			t.Errorf("%+v: got %s, want %s", tt.event, line, tt.want)
		}
	}
}

// TestAccessLogOfNobody: without a logger it writes where slog does by then.
func TestAccessLogOfNobody(t *testing.T) {
	access, log := middleware.AccessLog(nil), newLogged()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(log.hooks().Logger)
	if access(context.Background(), middleware.Event{Status: 204}); !strings.Contains(log.String(), "status=204") {
		t.Errorf("got %q", log)
	}
}
