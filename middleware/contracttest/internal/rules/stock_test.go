package rules_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// stock is a server on http.ServeMux as a team writes it: webhooks whose URL
// must be unique, and an app at every path that is not the API. Its fields are
// what the contract leaves open.
type stock struct {
	refuse     func(*stock, string) time.Duration // what an organization has to wait
	date       bool                               // Retry-After is a date
	mustKey    bool                               // a create needs an idempotency key
	conflict   bool                               // a duplicate in flight is answered 409
	storeAll   bool                               // any response is stored, as Stripe does, also a 400
	sameID     bool                               // a repeat has the id of the original
	numbers    bool                               // the list is a number
	firstPage  int                                // the list shows that many; 0: all
	noChunks   bool                               // a body needs a Content-Length
	lateList   bool                               // the list is behind by a second
	floor      bool                               // Retry-After is rounded down
	jsonPage   bool                               // unknown paths get JSON
	silent     bool                               // the response to a create says nothing
	echo       bool                               // the response to a create is its body
	hints      bool                               // a 103 stands in front of each response
	shortKeys  bool                               // an idempotency key that is long or odd is refused
	closes     bool                               // a 401 closes the connection
	cookies    bool                               // each response sets a cookie, which is no key
	options    bool                               // OPTIONS describes the path to anybody, in JSON
	noBody     bool                               // a create has no body
	upsert     bool                               // a create with the URL of another returns that one
	replayable map[string]*kept

	mu    sync.Mutex
	hooks []hook
	used  map[string][]time.Time
}

type hook struct {
	ID, URL, org string
	at           time.Time
}

type kept struct {
	done   chan struct{}
	status int
	header http.Header
	body   string
}

var stockKeys = map[string]struct{ org, scopes string }{
	"sk_prod_8fJ2mQx7LpZ4wRtY": {"a", "account:read webhooks:read webhooks:write"},
	"sk_prod_N3vB6cHk9TgD1sWe": {"a", ""},
	"sk_prod_Yq5oUz0XiC8jMf2A": {"b", "account:read webhooks:read webhooks:write"},
}

func stockTarget() rules.Target {
	return rules.Target{
		URL:     "http://stock",
		Keys:    map[string]string{"full": "sk_prod_8fJ2mQx7LpZ4wRtY", "none": "sk_prod_N3vB6cHk9TgD1sWe", "other": "sk_prod_Yq5oUz0XiC8jMf2A"},
		Creates: []rules.Create{{Path: "/api/v1/webhooks", List: "/api/v1/webhooks", Body: `{"url":"https://hooks.example.com/{{random}}"}`}},
		Without: []string{"worker", "reader", "writer", "second", "sandbox", "sandbox-none", "revoked", "second-create"},
		Burst:   300,
	}
}

func (s *stock) handler() http.Handler {
	s.used, s.replayable = make(map[string][]time.Time), make(map[string]*kept)
	mux := http.NewServeMux()
	route := func(pattern, scope string, h func(w http.ResponseWriter, r *http.Request, org string)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			key, known := stockKeys[token]
			if s.cookies {
				http.SetCookie(w, &http.Cookie{Name: "balancer", Value: rand.Text()})
			}
			if !found || !known {
				if s.closes {
					w.Header().Set("Connection", "close")
				}
				http.Error(w, "no live key for "+r.RequestURI, http.StatusUnauthorized)
				return
			}
			if s.refuse != nil {
				if wait := s.refuse(s, key.org); wait > 0 {
					value := fmt.Sprint(int((wait + time.Second - 1) / time.Second))
					if s.floor {
						value = fmt.Sprint(int(wait / time.Second))
					}
					if s.date {
						value = time.Now().Add(wait + time.Second - 1).UTC().Format(http.TimeFormat)
					}
					w.Header().Set("Retry-After", value)
					http.Error(w, "slow down", http.StatusTooManyRequests)
					return
				}
			}
			if !strings.Contains(" "+key.scopes+" ", " "+scope+" ") {
				http.Error(w, "forbidden", http.StatusForbidden)
				return
			}
			h(w, r, key.org)
		})
	}
	route("GET /api/v1/account", "account:read", func(w http.ResponseWriter, _ *http.Request, org string) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"org": org, "time": time.Now()})
	})
	route("GET /api/v1/webhooks", "webhooks:read", s.list)
	route("POST /api/v1/webhooks", "webhooks:write", s.create)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if s.jsonPage {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"service":"webhooks"}`)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><div id=app></div>")
	})
	if s.options {
		mux.HandleFunc("OPTIONS /", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name":"webhooks","allow":["GET","POST"]}`)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.hints {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("Svc-Request-Id", rand.Text())
		mux.ServeHTTP(w, r)
	})
}

func (s *stock) list(w http.ResponseWriter, _ *http.Request, org string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urls := []string{}
	for i := len(s.hooks) - 1; i >= 0; i-- {
		if h := s.hooks[i]; h.org == org && (!s.lateList || time.Since(h.at) > time.Second) {
			urls = append(urls, h.URL)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case s.numbers:
		_ = json.NewEncoder(w).Encode(map[string]any{"version": 2, "webhooks": map[string]int{"count": len(urls), "limit": 1 << 30}})
	case s.firstPage > 0:
		_ = json.NewEncoder(w).Encode(map[string]any{"urls": urls[:min(s.firstPage, len(urls))], "more": len(urls) > s.firstPage})
	default:
		_ = json.NewEncoder(w).Encode(urls)
	}
}

func (s *stock) create(w http.ResponseWriter, r *http.Request, org string) {
	key := r.Header.Get("Idempotency-Key")
	if s.mustKey && key == "" {
		http.Error(w, "Idempotency-Key is missing", http.StatusBadRequest)
		return
	}
	if s.shortKeys && (len(key) > 64 || strings.ContainsAny(key, `"'\;%/:{}$*`)) {
		http.Error(w, "Idempotency-Key is no key", http.StatusBadRequest)
		return
	}
	if s.noChunks && r.ContentLength < 0 {
		http.Error(w, "Content-Length is missing", http.StatusLengthRequired)
		return
	}
	if key == "" {
		body, err := io.ReadAll(r.Body)
		s.insert(w, body, err, org)
		return
	}
	s.mu.Lock()
	reply := s.replayable[org+key]
	if reply == nil {
		reply = &kept{done: make(chan struct{}), header: make(http.Header)}
		s.replayable[org+key] = reply
		s.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		s.insert(reply, body, err, org)
		s.mu.Lock()
		if reply.status >= 400 && !s.storeAll {
			delete(s.replayable, org+key)
		}
		if s.sameID {
			reply.header["Svc-Request-Id"] = w.Header()["Svc-Request-Id"]
		}
		close(reply.done)
	}
	s.mu.Unlock()
	select {
	case <-reply.done:
	default:
		if s.conflict {
			http.Error(w, "in progress", http.StatusConflict)
			return
		}
		<-reply.done
	}
	for name, values := range reply.header {
		w.Header()[name] = values
	}
	w.WriteHeader(reply.status)
	fmt.Fprint(w, reply.body)
}

func (s *stock) insert(w http.ResponseWriter, body []byte, err error, org string) {
	var in struct{ URL string }
	if s.noBody && len(body) == 0 {
		body = []byte(`{"url":"` + rand.Text() + `"}`)
	}
	if err != nil || json.Unmarshal(body, &in) != nil || in.URL == "" {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hooks {
		if h.URL == in.URL && h.org == org && s.upsert {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			fmt.Fprintf(w, `{"id":%q}`, h.ID)
			return
		}
		if h.URL == in.URL && h.org == org {
			http.Error(w, "there is a webhook with this URL", http.StatusConflict)
			return
		}
	}
	made := hook{rand.Text(), in.URL, org, time.Now()}
	s.hooks = append(s.hooks, made)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if s.silent {
		fmt.Fprint(w, "{}")
		return
	}
	if s.echo {
		_, _ = w.Write(body)
		return
	}
	fmt.Fprintf(w, `{"id":%q}`, made.ID)
}

// kept is the http.ResponseWriter of what is stored.
func (k *kept) Header() http.Header { return k.header }
func (k *kept) WriteHeader(n int)   { k.status = n }
func (k *kept) Write(p []byte) (int, error) {
	k.body += string(p)
	return len(p), nil
}

// window counts in windows that begin with the clock.
func window(limit int, length time.Duration) func(*stock, string) time.Duration {
	return func(s *stock, org string) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		name := org + now.Truncate(length).String()
		s.used[name] = append(s.used[name], now)
		if len(s.used[name]) <= limit {
			return 0
		}
		return now.Truncate(length).Add(length).Sub(now)
	}
}

// drip admits one request in each interval, and a few at the beginning.
func drip(every, burst time.Duration) func(*stock, string) time.Duration {
	return func(s *stock, org string) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		tat := now
		if last := s.used[org]; len(last) > 0 && last[0].After(now) {
			tat = last[0]
		}
		if wait := tat.Add(every - burst).Sub(now); wait > 0 {
			return wait
		}
		s.used[org] = []time.Time{tat.Add(every)}
		return 0
	}
}

// TestFreedoms wants no broken contract rule on a server that keeps the
// contract, whatever it does where the contract is silent.
func TestFreedoms(t *testing.T) {
	for name, test := range map[string]struct {
		server *stock
		change func(*rules.Target)
	}{
		"no limit":               {&stock{}, func(to *rules.Target) { to.Without = append(to.Without, "rate-limit") }},
		"windows":                {&stock{refuse: window(50, 10*time.Second)}, nil},
		"a window of a minute":   {&stock{refuse: window(100, time.Minute)}, nil},
		"dates":                  {&stock{refuse: window(40, 3*time.Second), date: true}, nil},
		"a few a second":         {&stock{refuse: drip(200*time.Millisecond, 4*time.Second)}, nil},
		"many a second":          {&stock{refuse: drip(10*time.Millisecond, time.Second)}, nil},
		"a key is required":      {&stock{refuse: window(50, time.Second), mustKey: true}, nil},
		"conflicts":              {&stock{refuse: window(50, time.Second), conflict: true}, nil},
		"refusals are stored":    {&stock{refuse: window(50, time.Second), storeAll: true}, nil},
		"the original's id":      {&stock{refuse: window(50, time.Second), sameID: true}, nil},
		"a count for a list":     {&stock{refuse: window(50, time.Second), numbers: true}, nil},
		"a wait rounded down":    {&stock{refuse: window(50, 2500*time.Millisecond), floor: true}, nil},
		"JSON at any path":       {&stock{refuse: window(50, time.Second), jsonPage: true}, nil},
		"a response of nothing":  {&stock{refuse: window(50, time.Second), silent: true}, nil},
		"an upsert":              {&stock{refuse: window(50, time.Second), upsert: true}, nil},
		"a page of ten":          {&stock{refuse: window(50, time.Second), firstPage: 10}, nil},
		"no chunked bodies":      {&stock{refuse: window(50, time.Second), noChunks: true}, nil},
		"a list that is behind":  {&stock{refuse: window(50, time.Second), lateList: true}, nil},
		"uuid in the unique URL": {&stock{refuse: window(50, time.Second)}, func(to *rules.Target) { to.Creates[0].Body = `{"url":"https://a.example/{{uuid}}"}` }},
		"number in the URL":      {&stock{refuse: window(50, time.Second)}, func(to *rules.Target) { to.Creates[0].Body = `{"url":"https://a.example/{{number}}"}` }},
		"short keys":             {&stock{refuse: window(50, time.Second), shortKeys: true}, nil},
		"closed connections":     {&stock{refuse: window(50, time.Second), closes: true}, nil},
		"a cookie":               {&stock{refuse: window(50, time.Second), cookies: true}, nil},
		"OPTIONS for anybody":    {&stock{refuse: window(50, time.Second), options: true}, nil},
		"early hints":            {&stock{refuse: window(50, time.Second), hints: true}, nil},
		"an echo":                {&stock{refuse: window(50, time.Second), echo: true}, nil},
		"an echo without a list": {&stock{refuse: window(50, time.Second), echo: true}, func(to *rules.Target) {
			to.Creates[0].List = ""
			to.Without = append(to.Without, "list")
		}},
		"a create without body": {&stock{refuse: window(50, time.Second), noBody: true}, func(to *rules.Target) { to.Creates[0].Body = "" }},
		"nothing is listed": {&stock{refuse: window(50, time.Second)}, func(to *rules.Target) {
			to.Creates[0].List = ""
			to.Without = append(to.Without, "list")
		}},
		"nothing is created": {&stock{refuse: window(50, time.Second)}, func(to *rules.Target) {
			to.Creates = nil
			to.Without = append(to.Without, "list", "create")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				to := stockTarget()
				if test.change != nil {
					test.change(&to)
				}
				h := test.server.handler()
				results, err := run(t, func(srv *http.Server) { srv.Handler = h }, to, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					if r.Failed(true, false) {
						t.Errorf("%s: %s", r.Rule.Name, r.Explain())
					}
				}
			})
		})
	}
}

// TestBreaches breaks the contract on servers whose responses do not say what
// was made, so that the list alone shows it.
func TestBreaches(t *testing.T) {
	for name, test := range map[string]struct{ defect, want string }{
		"shared among organizations": {"idem-org", "organization/idempotency"},
		"shared among environments":  {"idem-environment", "organization/environment-idempotency"},
		"shared among paths":         {"idem-path", "idempotency/routes-apart"},
		"cut keys":                   {"idem-key-cut", "idempotency/whole-keys"},
		"keys in any letter case":    {"idem-key-case", "idempotency/whole-keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(test.defect)
				results, err := run(t, func(srv *http.Server) {
					s.Configure(srv)
					srv.Handler = silence(s)
				}, target(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if results[test.want].Status != rules.Broken {
					t.Errorf("%s is %s", test.want, results[test.want].Explain())
				}
			})
		})
	}
}

// A limit on creates alone is not found by reading. A target may say that it
// has none; a 429 without Retry-After is a fault all the same.
func TestLimitOfCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, posts := newServer(), &stock{used: make(map[string][]time.Time)}
		s.Limit = 0
		to := target()
		to.Without = []string{"rate-limit"}
		results, err := run(t, func(srv *http.Server) {
			s.Configure(srv)
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && window(40, time.Second)(posts, "") > 0 {
					w.Header().Set("Svc-Request-Id", rand.Text())
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				s.ServeHTTP(w, r)
			})
		}, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := results["ratelimit/retry-after"]; r.Status != rules.Broken {
			t.Errorf("it is %s", r.Explain())
		}
	})
}

// silence takes away what the response to a create says.
func silence(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		recorder.Header().Del("Location")
		body := recorder.Body.String()
		if recorder.Code == http.StatusCreated {
			body = "{}"
		}
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		fmt.Fprint(w, body)
	})
}
