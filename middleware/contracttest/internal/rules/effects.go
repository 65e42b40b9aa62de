package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// markerPrefix is how much of a marker identifies a resource. A body that was
// cut in the middle of its marker is found, too.
const markerPrefix = 12

// effects knows how many resources there are. Where the list shows the marker
// of a body, only resources of that body are counted, and others may create
// meanwhile. Otherwise the length of the list counts.
type effects struct {
	routes  []routeEffects
	counted bool // on some route the length of the list counts

	mu     sync.Mutex
	ledger map[string]*entry // by marker
	looked int               // how many of them the first look made
}

type routeEffects struct {
	list    string
	perItem int    // how often a resource shows its marker; 0: count the list
	measure string // which number of the list is its length
}

// entry is what the list may show of a creation at most.
type entry struct {
	creation creation
	most     int
	order    int // of preparation
}

// expect allows a creation to make so many resources.
func (s *Session) expect(c creation, most int) {
	s.effects.mu.Lock()
	defer s.effects.mu.Unlock()
	if s.effects.ledger == nil {
		s.effects.ledger = make(map[string]*entry)
	}
	if known := s.effects.ledger[c.marker]; known != nil {
		known.most = most
	} else if c.marker != "" {
		s.effects.ledger[c.marker] = &entry{c, most, len(s.effects.ledger)}
	}
}

// sendsAgain allows a create without an idempotency key to make one more: the
// server may have made one before the connection ended.
func (s *Session) sendsAgain(r request) {
	s.effects.mu.Lock()
	defer s.effects.mu.Unlock()
	for marker, e := range s.effects.ledger {
		if e.most > 0 && r.header("Idempotency-Key") == "" && strings.Contains(r.body, marker) {
			e.most++
		}
	}
}

// list returns what is known of the list of a route, nil when it has none.
func (s *Session) list(route int) *routeEffects {
	if route < len(s.effects.routes) && s.effects.routes[route].list != "" {
		return &s.effects.routes[route]
	}
	return nil
}

// watch counts the resources that a creation makes from now on. Without a list
// it sees none, and nothing it wants is ever missed.
type watch struct {
	p      *probe
	c      creation
	in     *routeEffects // nil: no list
	before int
}

func (p *probe) watch(c creation) watch {
	w := watch{p: p, c: c, in: p.list(c.route)}
	if w.in != nil && w.in.perItem == 0 {
		w.before = w.count()
	}
	return w
}

// count returns how many resources the list shows now.
func (w watch) count() int {
	if w.in == nil {
		return 0
	}
	a := w.p.do(get(w.in.list, w.c.seenBy))
	if !a.ok() {
		w.p.unclearf("GET %s, which shows the resources, is answered %v", w.in.list, a)
	}
	if w.in.perItem == 0 {
		return measures(a.body)[w.in.measure] - w.before
	}
	return w.in.times(a.body, w.c.marker)
}

// await counts until there are n, for a moment: a list may be behind.
func (w watch) await(n int) (got int) {
	for range 10 {
		if got = w.count(); got >= n || w.in == nil {
			break
		}
		w.p.sleep(200 * time.Millisecond)
	}
	return got
}

// times is how many resources with the marker the list shows.
func (e *routeEffects) times(list, marker string) int {
	return (strings.Count(list, marker[:markerPrefix]) + e.perItem - 1) / e.perItem
}

// most ends the check when there are more resources than n. It is what a rule
// calls for a creation that may come to nothing.
func (w watch) most(n int, what string) {
	if got := w.count(); got > n {
		w.p.fault(answer{}, "%s: GET %s shows %s, want %s", what, w.in.list, resources(got), atMost(n))
	}
}

// exactly ends the check unless there are n resources.
func (w watch) exactly(n int, what string) {
	got := w.await(n)
	whole := w.in != nil && got < n && w.whole()
	for try := 0; w.in != nil && got < n && (whole || !w.pushedOut()) && try < 5; try++ {
		got = w.await(n) // 12 s in all: a list may be behind
	}
	switch {
	case w.in == nil || got == n:
	case got > n || whole:
		w.p.fault(answer{}, "%s: GET %s shows %s, want %d", what, w.in.list, resources(got), n)
	case !w.pushedOut():
		w.p.unclearf("%s: GET %s does not show the resource that a 2xx reported; is the list paged?", what, w.in.list)
	}
}

// made ends the check when the list does not show a resource that a 2xx
// reported. It is for servers whose responses do not name what was made.
func (w watch) made(what string) {
	if !w.p.silent || w.in == nil || w.await(1) > 0 {
		return
	}
	if w.whole() || !w.pushedOut() {
		w.p.fault(answer{}, "%s was answered with a success, and GET %s does not show it", what, w.in.list)
	}
}

// whole reports whether the list shows what the first look made: it is no page
// that pushes something out.
func (w watch) whole() bool {
	return w.in.perItem > 0 && w.shows(func(e *entry) bool {
		return e.order < w.p.effects.looked && e.creation.route == w.c.route
	})
}

// pushedOut reports whether the list shows later creations. Then it is a page,
// on which an earlier one is not shown any more, but a duplicate would be.
func (w watch) pushedOut() bool {
	return w.in.perItem > 0 && w.shows(func(e *entry) bool { return e.order > w.p.effects.ledger[w.c.marker].order })
}

// shows reports whether the list shows one of these creations.
func (w watch) shows(these func(*entry) bool) bool {
	list := w.p.do(get(w.in.list, w.c.seenBy)).body
	w.p.effects.mu.Lock()
	defer w.p.effects.mu.Unlock()
	for marker, e := range w.p.effects.ledger {
		if these(e) && strings.Contains(list, marker[:markerPrefix]) {
			return true
		}
	}
	return false
}

func resources(n int) string {
	switch n {
	case 0:
		return "none"
	case 1:
		return "1 resource"
	}
	return fmt.Sprintf("%d resources", n)
}

func atMost(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("at most %d", n)
}

// checkLedger counts all creations of the session once more.
func (p *probe) checkLedger() {
	p.effects.mu.Lock()
	entries := slices.Collect(maps.Values(p.effects.ledger))
	p.effects.mu.Unlock()
	slices.SortFunc(entries, func(a, b *entry) int { return a.order - b.order })
	lists := make(map[string]string)
	for _, e := range entries {
		r := p.list(e.creation.route)
		if r == nil || r.perItem == 0 {
			continue
		}
		name := r.list + " " + e.creation.seenBy
		if _, ok := lists[name]; !ok {
			lists[name] = p.do(get(r.list, e.creation.seenBy)).body
		}
		if got := r.times(lists[name], e.creation.marker); got > e.most {
			p.fault(answer{to: e.creation.request}, "at the end GET %s shows %s of this create, want %s",
				r.list, resources(got), atMost(e.most))
		}
	}
}

// measures returns all numbers in a JSON text that may be the length of a
// list: lengths of arrays, and integers.
func measures(text string) map[string]int {
	found := make(map[string]int)
	var value any
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return found
	}
	var visit func(path string, value any, depth int)
	visit = func(path string, value any, depth int) {
		switch v := value.(type) {
		case []any:
			found["a"+path] = len(v)
		case json.Number:
			if n, err := v.Int64(); err == nil {
				found["n"+path] = int(n)
			}
		case map[string]any:
			for name, member := range v {
				if depth < 3 {
					visit(path+"/"+name, member, depth+1)
				}
			}
		}
	}
	visit("", value, 0)
	return found
}

// length finds the measure that rose by one each time.
func length(lists []string) (string, bool) {
	all := make([]map[string]int, len(lists))
	for i, list := range lists {
		all[i] = measures(list)
	}
	for _, name := range slices.Sorted(maps.Keys(all[len(all)-1])) {
		rises := true
		for i := 1; i < len(all); i++ {
			before, ok := all[i-1][name]
			rises = rises && all[i][name]-before == 1 && (ok || all[i][name] == 1)
		}
		if rises {
			return name, true
		}
	}
	return "", false
}
