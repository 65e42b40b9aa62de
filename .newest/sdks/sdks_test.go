// Package sdks holds what a response says of repeats to the SDKs that repeat by
// themselves.
package sdks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

const base = "/api/v1/"

// body is what the SDKs send for map[string]string{"title": "x"}.
const body = `{"title":"x"}`

// A scene is a server that answers the create under the key "a" with a code.
type scene struct {
	code   string // or the status of the handler's
	helps  bool   // the code says so: then the trouble is over after one request
	serve  func(*stage)
	before func(*stage) // brings it about
}

// stage is the server of a scene.
type stage struct {
	t       *testing.T
	options middleware.Options
	handler http.HandlerFunc
	store   *flaky
	runner  idem.Options
	units   int64
	token   string
	trouble atomic.Bool
	release chan struct{} // for handlers that are busy; closed when the trouble is over
	entered chan struct{}
	seen    atomic.Int64
	url     string
}

var errDown = errors.New("down")

// scenes are all codes that say whether a repeat helps, and the responses of
// handlers that are stored.
func scenes() []scene {
	fails := func(status int) func(*stage) {
		return func(s *stage) { s.handler = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) } }
	}
	busy := func(s *stage) {
		s.handler = func(w http.ResponseWriter, r *http.Request) {
			if s.trouble.Load() {
				close(s.entered)
				<-s.release
			}
		}
		s.runner = idem.Options{Wait: -1, ExecutionsPerTenant: 1}
	}
	meanwhile := func(key string) func(*stage) {
		return func(s *stage) {
			go s.post(key, body)
			<-s.entered
		}
	}
	limited := func(err error) func(*stage) {
		return func(s *stage) {
			s.options.RateLimit = middleware.PerOrganization("100-S")
			s.options.RateLimit.Store = limits{s, s.options.RateLimit.Store, err}
		}
	}
	once := func(s *stage) { s.post("a", body) }
	return []scene{
		{code: "500", serve: fails(500)},
		{code: "503 replayed", serve: fails(503), before: once},
		{code: "429", serve: fails(429)},
		{code: "409", serve: fails(409)},
		{code: "panic", serve: func(s *stage) { s.handler = func(http.ResponseWriter, *http.Request) { panic("boom") } }},
		{code: "idempotency_interrupted", serve: func(s *stage) {
			s.options.Idempotency.Timeout = 20 * time.Millisecond
			s.handler = func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}},
		{code: "idempotency_outcome_unknown", before: once, serve: func(s *stage) {
			s.handler = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		}},
		{code: "idempotency_response_not_retained", before: once, serve: func(s *stage) {
			s.handler = func(w http.ResponseWriter, r *http.Request) {
				middleware.ExecutionFrom(r.Context()).DropResponse()
			}
		}},
		{code: "constraint_violated", serve: func(s *stage) {
			s.runner.Join = true
			s.store.settle = idem.ErrConstraint
		}},
		{code: "idempotency_key_reused", before: func(s *stage) { s.post("a", "other") }},
		{code: "quota_exceeded", before: func(s *stage) { s.post("b", body) }, serve: func(s *stage) {
			s.options.Quota.Organization = &idem.Quota{Name: "monthly", Units: 1}
			s.units = 1
		}},

		{code: "idempotency_in_progress", helps: true, serve: busy, before: meanwhile("a")},
		{code: "too_many_in_flight", helps: true, serve: busy, before: meanwhile("b")},
		{code: "too_many_concurrent", helps: true, before: meanwhile("b"), serve: func(s *stage) {
			busy(s)
			s.options.RateLimit.Concurrent = 1
		}},
		{code: "rate_limited", helps: true, serve: limited(nil)},
		{code: "rate_store_unavailable", helps: true, serve: limited(errDown)},
		{code: "key_store_unavailable", helps: true},
		{code: "idempotency_store_unavailable", helps: true, serve: func(s *stage) { s.store.begin = errDown }},
		{code: "idempotency_store_full", helps: true, serve: func(s *stage) { s.store.begin = idem.ErrFull }},
		{code: "idempotency_commit_unknown", helps: true, serve: func(s *stage) {
			s.runner.Join = true
			s.store.settle = idem.ErrCommitUnknown
		}},
	}
}

// newStage serves a scene.
func newStage(t *testing.T, sc scene, configure func(*middleware.Options)) *stage {
	s := &stage{t: t, handler: func(http.ResponseWriter, *http.Request) {},
		release: make(chan struct{}), entered: make(chan struct{})}
	s.store = &flaky{Memory: &idem.Memory{}, stage: s}
	s.options.Hooks = &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}
	if sc.serve != nil {
		sc.serve(s)
	}
	if configure != nil {
		configure(&s.options)
	}
	s.options.Idempotency.Runner = idem.NewRunner(s.store, s.runner)
	s.options.Idempotency.JSONByValue = true // the Go SDKs put a line's end behind the body
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(),
		keystore.Key{Organization: "org", Environment: keystore.Production})
	if err != nil {
		t.Fatal(err)
	}
	s.token = secret.Reveal()
	api := middleware.NewAPI(lookups{s, keys, sc.code == "key_store_unavailable"}, s.options)
	api.HandleFunc("POST "+base+"tasks", middleware.AnyCaller(), s.handler, middleware.RouteOptions{Units: s.units})
	counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Before") != "" {
			api.ServeHTTP(w, r)
			return
		}
		first := s.seen.Add(1) == 1
		api.ServeHTTP(w, r)
		if first {
			s.heal()
		}
	})
	srv := httptest.NewServer(counting)
	t.Cleanup(srv.Close)
	t.Cleanup(s.heal)
	s.url = srv.URL + base
	s.trouble.Store(true)
	if sc.before != nil {
		sc.before(s)
	}
	return s
}

// heal ends the trouble.
func (s *stage) heal() {
	if s.trouble.CompareAndSwap(true, false) {
		close(s.release)
	}
}

// post creates beside the SDK.
func (s *stage) post(key, body string) {
	r, _ := http.NewRequest("POST", s.url+"tasks", strings.NewReader(body))
	r.Header = http.Header{"Authorization": {"Bearer " + s.token}, "Idempotency-Key": {key}, "X-Before": {"true"},
		"Content-Type": {"application/json"}}
	if res, err := http.DefaultClient.Do(r); err == nil {
		res.Body.Close()
	}
}

// flaky is a store with transactions that is in trouble.
type flaky struct {
	*idem.Memory
	stage         *stage
	begin, settle error // settle, of a transaction
}

func (f *flaky) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if f.begin != nil && f.stage.trouble.Load() {
		return idem.Record{}, f.begin
	}
	return f.Memory.Begin(ctx, c)
}

func (f *flaky) Join(ctx context.Context, c idem.Claim, _ time.Duration) (idem.Record, idem.Transaction, error) {
	record, err := f.Begin(ctx, c)
	if err != nil || record.State != idem.Claimed {
		return record, nil, err
	}
	return record, transaction{f, c}, nil
}

type transaction struct {
	*flaky
	claim idem.Claim
}

func (t transaction) Context(parent context.Context) context.Context { return parent }

func (t transaction) Settle(ctx context.Context, s idem.Settlement) error {
	failing := t.stage.trouble.Load()
	if failing && t.settle == idem.ErrConstraint { // it is rolled back
		s = idem.Settlement{Outcome: idem.OutcomeFree, Retention: 1}
	}
	err := t.Memory.Settle(ctx, t.claim.Key, t.claim.Token, s)
	if err == nil && failing {
		err = t.settle
	}
	return err
}

// limits is a store of limits in trouble, and lookups one of keys.
type limits struct {
	*stage
	ratelimit.Store
	err error // nil refuses the request
}

func (l limits) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if l.trouble.Load() {
		return ratelimit.Decision{States: [4]ratelimit.State{{Wait: time.Second}}}, l.err
	}
	return l.Store.Take(ctx, charges)
}

type lookups struct {
	stage *stage
	keystore.Store
	down bool
}

func (l lookups) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if l.down && l.stage.trouble.Load() {
		return nil, errDown
	}
	return l.Store.Lookup(ctx, d)
}

// check wants one request of what is final and two of what is not, the second
// of which succeeds.
func (s *stage) check(sc scene, sdk string, status any) {
	s.t.Helper()
	n, want := s.seen.Load(), int64(1)
	if sc.helps {
		want = 2
	}
	if n != want || (fmt.Sprint(status) == "200") != sc.helps {
		s.t.Errorf("%s, %s: %d requests, the last answered %v; want %d", sdk, sc.code, n, status, want)
	}
}

// sdks send a create and return the status that it ends with.
var sdks = map[string]func(ctx context.Context, url, token string) any{
	"openai-go": func(ctx context.Context, url, token string) any {
		client := openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(token), option.WithMaxRetries(2))
		err := client.Post(ctx, "tasks", map[string]string{"title": "x"}, nil, option.WithHeader("Idempotency-Key", "a"))
		if e, ok := errors.AsType[*openai.Error](err); ok {
			return e.StatusCode
		}
		return ended(err)
	},
	"anthropic-sdk-go": func(ctx context.Context, url, token string) any {
		client := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAuthToken(token),
			anthropicoption.WithMaxRetries(2))
		err := client.Post(ctx, "tasks", map[string]string{"title": "x"}, nil,
			anthropicoption.WithHeader("Idempotency-Key", "a"))
		if e, ok := errors.AsType[*anthropic.Error](err); ok {
			return e.StatusCode
		}
		return ended(err)
	},
}

func ended(err error) any {
	if err == nil {
		return 200
	}
	return err
}

// None repeats in vain what is final, and each gets past what is not.
func TestSDKs(t *testing.T) {
	for name, send := range sdks {
		for _, sc := range scenes() {
			t.Run(name+"/"+sc.code, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, sc, nil)
				s.check(sc, name, send(t.Context(), s.url, s.token))
			})
		}
	}
}

// Without the field they repeat, so the test above would see it.
func TestSDKsWithoutTheField(t *testing.T) {
	for name, send := range sdks {
		s := newStage(t, scenes()[0], func(o *middleware.Options) { o.NoShouldRetry = true })
		if send(t.Context(), s.url, s.token); s.seen.Load() != 3 {
			t.Errorf("%s: %d requests, want 3", name, s.seen.Load())
		}
	}
}

// TestNode is TestSDKs for openai-node.
func TestNode(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("node/node_modules"); err != nil {
		t.Skip("left out: openai-node; it needs npm ci --prefix node")
	}
	var stages []*stage
	all := scenes()
	// Each scene has a key of its own organization: the SDK sends one key.
	args := []string{"node/post.mjs"}
	for _, sc := range all {
		stages = append(stages, newStage(t, sc, nil))
		args = append(args, stages[len(stages)-1].token+"@"+stages[len(stages)-1].url)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	var statuses []any
	if err := errors.Join(cmd.Run(), json.Unmarshal(out.Bytes(), &statuses)); err != nil || len(statuses) != len(all) {
		t.Fatalf("%v: %s%s", err, &out, &log)
	}
	for i, sc := range all {
		stages[i].check(sc, "openai-node", statuses[i])
	}
}

// Each code of the page for clients that says whether a repeat helps is a scene.
func TestScenes(t *testing.T) {
	page, err := os.ReadFile("../../.github/CLIENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| \\d+ \\| `(\\w+)` \\| (true|false) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) == 0 {
		t.Error("the page has no such codes")
	}
	for _, row := range rows {
		told := func(sc scene) bool { return sc.code == row[1] && sc.helps == (row[2] == "true") }
		if !slices.ContainsFunc(scenes(), told) {
			t.Errorf("no scene has %s, which says %s", row[1], row[2])
		}
	}
}
