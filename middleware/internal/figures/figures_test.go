package figures_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/figures"
)

func TestResponseOf(t *testing.T) {
	for _, tt := range []struct {
		method, pattern, outcome string // of the event
		label, route             string
		refused                  bool
	}{
		{"GET", "GET /api/v1/tasks/{id}", "handled", "GET", "/api/v1/tasks/{id}", false},
		{"POST", "POST \t/tasks", "executed", "POST", "/tasks", false},
		{"GET", "api.example.com/{path...}", "redirected", "GET", "api.example.com/{path...}", false},
		{"QUERY", "/with a space", "rate_limited", "QUERY", "/with a space", true},
		{"BREW", "", "not_found", figures.Other, "", true},
	} {
		got := figures.ResponseOf(&middleware.Event{Method: tt.method, Pattern: tt.pattern, Outcome: tt.outcome})
		if got.Method != tt.label || got.Route() != tt.route || got.Outcome != tt.outcome || got.Refused() != tt.refused {
			t.Errorf("%+v: got %+v of the route %q, refused %t", tt, got, got.Route(), got.Refused())
		}
	}
	for _, tt := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Stage: middleware.StageHandler, Outcome: "handled", ReportedCode: "api_key_missing"}, "reported"},
		{middleware.Event{Stage: middleware.StageRoute, Outcome: "not_found", ReportedCode: "api_key_missing"}, "not_found"},
		{middleware.Event{Status: 200, Outcome: "handled", Aborted: true}, "aborted"},
		{middleware.Event{Status: 200, Outcome: "internal", Aborted: true}, "internal"},
	} {
		if got := figures.ResponseOf(&tt.event); got.Outcome != tt.want {
			t.Errorf("%+v: got %+v, want the outcome %s", tt.event, got, tt.want)
		}
	}
}

// What a response counts as among the failures, and each of them has a series
// from the start.
func TestFailure(t *testing.T) {
	known := make(map[figures.Failure]bool)
	for _, f := range figures.Failures() {
		known[f] = true
	}
	for _, tt := range []struct {
		status        int
		outcome, kind string
	}{
		{200, "handled", ""},
		{499, "handled", ""},
		{429, "rate_limited", ""},
		{500, "handled", "error"},
		{500, "executed", "error"},
		{500, "replayed", "error"},
		{503, "reported", "error"},
		{500, "internal", "error"},
		{200, "internal", "error"},
		{502, "handled", "upstream"},
		{504, "executed", "upstream"},
		{200, "aborted", "aborted"},
		{0, "aborted", "aborted"},
		{503, "key_store_unavailable", "error"},
		{503, "rate_store_unavailable", "error"},
		{503, "too_many_in_flight", "error"},
		{503, "idempotency_store_unavailable", "error"},
		{503, "idempotency_store_full", "error"},
		{503, "idempotency_commit_unknown", "error"},
		{503, "idempotency_interrupted", "error"},
	} {
		f, ok := figures.Response{Status: tt.status, Outcome: tt.outcome}.Failure()
		if ok != (tt.kind != "") || f.Kind != tt.kind || ok && !known[f] {
			t.Errorf("%+v: got %+v, %t; known from the start: %t", tt, f, ok, known[f])
		}
	}
}

func TestLimitOf(t *testing.T) {
	for _, tt := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Outcome: "handled"}, "{ admitted} false"},
		{middleware.Event{Policy: "org", Outcome: "handled"}, "{org admitted} true"},
		{middleware.Event{Policy: "org", Stage: "rate_limit", Outcome: "rate_limited"}, "{org refused} true"},
		// The policy let it pass, and Concurrent did not.
		{middleware.Event{Policy: "org", Stage: "rate_limit", Outcome: "too_many_concurrent"}, "{org admitted} true"},
		{middleware.Event{Policy: "org", Stage: "handler", ReportedCode: "rate_limited"}, "{org reported} true"},
		{middleware.Event{Policy: "monthly", Stage: "quota", Outcome: "quota_exceeded"}, "{ } false"},
		{middleware.Event{Policy: "org", Stage: "handler", ReportedCode: "insufficient_scope"}, "{org admitted} true"},
		{middleware.Event{Stage: "rate_limit", Outcome: "rate_store_unavailable"}, "{ failed} true"},
	} {
		l, ok := figures.LimitOf(&tt.event)
		if got := fmt.Sprint(l, ok); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.event, got, tt.want)
		}
	}
}

func TestIdempotencyOf(t *testing.T) {
	for _, tt := range []struct {
		outcome, want string
		waited        time.Duration
		executed      bool
	}{
		{outcome: "handled"},
		{outcome: "internal"},
		{outcome: "idempotency_key_invalid"},
		{outcome: "executed", executed: true, want: "executed"},
		{outcome: "internal", executed: true, want: "executed"},
		{outcome: "handled", executed: true, want: "executed"}, // aborted
		{outcome: "replayed", want: "replayed"},
		{outcome: "replayed", waited: 1, want: "waited"},
		{outcome: "idempotency_in_progress", waited: 1, want: "conflict"},
		{outcome: "idempotency_key_reused", want: "mismatch"},
		{outcome: "idempotency_response_not_retained", want: "not_retained"},
		{outcome: "idempotency_outcome_unknown", want: "unknown"},
		{outcome: "idempotency_commit_unknown", executed: true, want: "unknown"},
		{outcome: "idempotency_interrupted", executed: true, want: "unknown"},
	} {
		e := &middleware.Event{Outcome: tt.outcome, Waited: tt.waited, Executed: tt.executed}
		if got := figures.IdempotencyOf(e); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

func TestExpected(t *testing.T) {
	var got []string
	off := middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{Off: true}}
	for _, r := range figures.Expected([]middleware.Route{
		{Method: "POST", Path: "/tasks"}, {Method: "GET", Path: "/account", Options: off}, {Path: "/any", Options: off},
	}) {
		got = append(got, fmt.Sprintf("%s %q %d %s %s", r.Method, r.Pattern, r.Status, r.Outcome, r.Environment))
	}
	want := []string{
		`POST "POST /tasks" 201 executed production`, `POST "POST /tasks" 201 executed sandbox`,
		`POST "POST /tasks" 429 rate_limited production`, `POST "POST /tasks" 429 rate_limited sandbox`,
		`GET "GET /account" 200 handled production`, `GET "GET /account" 200 handled sandbox`,
		`GET "GET /account" 429 rate_limited production`, `GET "GET /account" 429 rate_limited sandbox`,
		`_OTHER "/any" 200 handled production`, `_OTHER "/any" 200 handled sandbox`,
		`_OTHER "/any" 429 rate_limited production`, `_OTHER "/any" 429 rate_limited sandbox`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// never is a store of replies that has not removed expired ones yet.
type never struct{ idem.Store }

func (never) Swept() time.Time { return time.Time{} }

// What the parts count is seen in the packages that show it.
func TestFiguresOfNothing(t *testing.T) {
	for _, store := range []idem.Store{&idem.Memory{}, never{&idem.Memory{}}} {
		for _, f := range (figures.Parts{Replies: idem.NewRunner(store, idem.Options{})}).Figures() {
			if f.Value != 0 {
				t.Errorf("%s of a new %T is %v", f.Name, store, f.Value)
			}
		}
	}
}
