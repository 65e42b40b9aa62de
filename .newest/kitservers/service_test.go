// Package kitservers holds servers that keep the contract and have nothing of
// this module in them: one on chi, one on gin, one on echo, one in Python, one
// for Node and one on Express. The contract kit has to find nothing wrong with
// any of them. Each takes the freedom that the contract leaves in another way.
package kitservers

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A caller is what an API key stands for.
type caller struct {
	org    string
	scopes string // with spaces around
}

func (c caller) may(scope string) bool { return strings.Contains(c.scopes, " "+scope+" ") }

var callers = map[string]caller{
	"acme_live_kR8vTq2mXw4ZpLs9": {"org_1", " account:read tasks:read tasks:write "},
	"acme_live_Nn3bHc7yDf1GjQe5": {"org_1", " "},
	"acme_live_Wd6uKz0oBa8RiVt2": {"org_1", " chat:read chat:write "},
	"acme_live_Rx4sMe9pYg7CnJo1": {"org_1", " account:read tasks:read "},
	"acme_live_Ft5wLq3kUv2HbZd8": {"org_1", " tasks:write "},
	"acme_live_Ov7jPy6aSn4XcGm0": {"org_2", " account:read tasks:read tasks:write "},
}

// windows counts in fixed windows, as most do.
type windows struct {
	mu     sync.Mutex
	limit  int
	length time.Duration
	start  time.Time
	used   map[string]int
}

// admit returns how long to wait, which is 0 if the caller is admitted.
func (l *windows) admit(org string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.start) >= l.length {
		l.start, l.used = now, make(map[string]int)
	}
	l.used[org]++
	if l.used[org] <= l.limit {
		return 0
	}
	return l.length - time.Since(l.start)
}

// log is a sliding log, which counts refused requests too.
type log struct {
	mu     sync.Mutex
	limit  int
	length time.Duration
	times  map[string][]time.Time
}

func (l *log) admit(org string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	times := l.times[org]
	for len(times) > 0 && now.Sub(times[0]) >= l.length {
		times = times[1:]
	}
	if len(times) >= l.limit {
		times = append(times[1:], now)
		l.times[org] = times
		return l.length - now.Sub(times[0])
	}
	l.times[org] = append(times, now)
	return 0
}

// bucket is a GCRA.
type bucket struct {
	mu    sync.Mutex
	every time.Duration
	burst time.Duration
	tat   map[string]time.Time
}

func (l *bucket) admit(org string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	tat := l.tat[org]
	if tat.Before(now) {
		tat = now
	}
	if wait := tat.Add(l.every - l.burst).Sub(now); wait > 0 {
		return wait
	}
	l.tat[org] = tat.Add(l.every)
	return 0
}

// A task is what is created.
type task struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	org   string
}

// A stored response.
type stored struct {
	status   int
	location string
	body     []byte
}

// tasks creates at most once for a key.
type tasks struct {
	mu      sync.Mutex
	all     []task
	replies map[string]*stored // nil: in progress
	unique  bool               // no two titles of an organization are the same
	wait    bool               // a duplicate in progress waits; else 409
}

func newTasks() *tasks { return &tasks{replies: make(map[string]*stored)} }

// create returns the response to a create. The body is whole.
func (t *tasks) create(org, key string, body []byte) stored {
	var in struct{ Title string }
	if json.Unmarshal(body, &in) != nil || in.Title == "" {
		return stored{status: 400, body: []byte(`{"error":"bad body"}`)}
	}
	t.mu.Lock()
	if key != "" {
		for {
			reply, known := t.replies[org+" "+key]
			if !known {
				break
			}
			if reply != nil {
				t.mu.Unlock()
				return *reply
			}
			if !t.wait {
				t.mu.Unlock()
				return stored{status: 409, body: []byte(`{"error":"in progress"}`)}
			}
			t.mu.Unlock()
			time.Sleep(time.Millisecond)
			t.mu.Lock()
		}
		t.replies[org+" "+key] = nil
	}
	defer t.mu.Unlock()
	t.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // the work
	t.mu.Lock()
	reply := stored{status: 201}
	made := task{rand.Text(), in.Title, org}
	for _, other := range t.all {
		if t.unique && other.org == org && other.Title == in.Title {
			reply = stored{status: 409, body: []byte(`{"error":"there is one with this title"}`)}
		}
	}
	if reply.status == 201 {
		t.all = append(t.all, made)
		reply.location = "/api/v1/tasks/" + made.ID
		reply.body, _ = json.Marshal(made)
	}
	if key != "" {
		t.replies[org+" "+key] = &reply
	}
	return reply
}

// list returns at most n tasks, the newest first.
func (t *tasks) list(org string, n int) []task {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := []task{}
	for i := len(t.all) - 1; i >= 0 && len(found) < n; i-- {
		if t.all[i].org == org {
			found = append(found, t.all[i])
		}
	}
	return found
}

// authenticate returns the status of a refusal, or 0.
func authenticate(h http.Header) (caller, int) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	c, known := callers[token]
	if scheme != "Bearer" || !known { // in this letter case only
		return caller{}, 401
	}
	return c, 0
}

func retryAfter(wait time.Duration) string {
	return fmt.Sprint(int((wait + time.Second - 1) / time.Second))
}
