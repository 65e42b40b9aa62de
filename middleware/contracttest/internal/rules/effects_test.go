package rules

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

func TestMeasures(t *testing.T) {
	got := measures(`{"list": [1, 2], "total": 3, "half": 1.5, "name": "x", "in": {"in": {"in": 4, "no": {"in": 5}}}}`)
	if want := map[string]int{"a/list": 2, "n/total": 3, "n/in/in/in": 4}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := measures(`[7, [8]]`); !maps.Equal(got, map[string]int{"a": 2}) {
		t.Errorf("of an array: got %v", got)
	}
	large := int64(12345678901234567) // on 32 bits an int has the last of them, which differences need
	if got := measures(`12345678901234567`); !maps.Equal(got, map[string]int{"n": int(large)}) {
		t.Errorf("of a number: got %v", got)
	}
	if got := measures(`{`); got == nil || len(got) > 0 {
		t.Errorf("of no JSON: got %v", got)
	}
}

func TestLength(t *testing.T) {
	for name, test := range map[string]struct{ lists, want string }{
		"a number":                {`{"n": 4}; {"n": 5}; {"n": 6}`, "n/n"},
		"an array":                {`[]; [1]; [1, 1]`, "a"},
		"a number that falls":     {`{"n": 6}; {"n": 5}; {"n": 4}`, ""},
		"a number that stays":     {`{"n": 4}; {"n": 5}; {"n": 5}`, ""},
		"a number that jumps":     {`{"n": 4}; {"n": 6}; {"n": 8}`, ""},
		"a number that is late":   {`{"n": 4}; {"n": 4}; {"n": 5}`, ""},
		"a number that begins":    {`{}; {"n": 1}; {"n": 2}`, "n/n"},
		"a number that begins at": {`{}; {"n": 2}; {"n": 3}`, ""},
		"a number that ends":      {`{"n": 1}; {"n": 2}; {}`, ""},
		"the first of two":        {`{"a": 1, "n": 4}; {"a": 2, "n": 5}; {"a": 3, "n": 6}`, "n/a"},
		"the second of two":       {`{"a": 1, "n": 4}; {"a": 2, "n": 5}; {"a": 9, "n": 6}`, "n/n"},
	} {
		got, ok := length(strings.Split(test.lists, "; "))
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s: got %q, %t", name, got, ok)
		}
	}
}

// A list may show a marker several times for each resource.
func TestTimes(t *testing.T) {
	const marker = "ck3456789012345678"
	for shown, want := range map[int]int{0: 0, 1: 1, 3: 1, 4: 2, 6: 2, 7: 3} {
		list := strings.Repeat(marker[:markerPrefix]+" ck345678901", shown)
		if got := (&routeEffects{perItem: 3}).times(list, marker); got != want {
			t.Errorf("%d: got %d, want %d", shown, got, want)
		}
	}
}

// What a list shows is judged by the creations that it knows of.
func TestWatch(t *testing.T) {
	status, list := 200, ""
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, list)
	}, func(p *probe) {
		p.effects.routes = []routeEffects{{list: reference.Tasks, perItem: 1}}
		p.silent, p.effects.looked = true, 2
		c := make([]creation, 4)
		for i := range c {
			c[i] = p.create(0, p.full())
		}
		w := p.watch(c[2]) // the first two are of the first look
		none := watch{p: p, c: c[2]}
		for name, test := range map[string]struct {
			shown  []int
			status int
			look   func()
			want   Status
		}{
			"one":                      {[]int{2}, 200, func() { w.exactly(1, "") }, Held},
			"two":                      {[]int{2, 2}, 200, func() { w.exactly(1, "") }, Broken},
			"two of two":               {[]int{2, 2}, 200, func() { w.exactly(2, "") }, Held},
			"lost":                     {nil, 200, func() { w.exactly(1, "") }, Unclear},
			"lost behind earlier ones": {[]int{0, 1}, 200, func() { w.exactly(1, "") }, Broken},
			"pushed out":               {[]int{3}, 200, func() { w.exactly(1, "") }, Held},
			"no list":                  {nil, 200, func() { none.exactly(1, "") }, Held},
			"a list that fails":        {[]int{2}, 500, func() { w.exactly(1, "") }, Unclear},
			"at most none":             {nil, 200, func() { w.most(0, "") }, Held},
			"more than none":           {[]int{2}, 200, func() { w.most(0, "") }, Broken},
			"at most one":              {[]int{2, 3}, 200, func() { w.most(1, "") }, Held},
			"made":                     {[]int{2}, 200, func() { w.made("") }, Held},
			"made twice":               {[]int{2, 2}, 200, func() { w.made("") }, Held},
			"not made":                 {nil, 200, func() { w.made("") }, Broken},
			"made and pushed out":      {[]int{3}, 200, func() { w.made("") }, Held},
			"not on a whole list":      {[]int{3, 1}, 200, func() { w.made("") }, Broken},
			"made without a list":      {nil, 200, func() { none.made("") }, Held},
			"the ledger":               {[]int{0, 1, 2, 3}, 200, p.checkLedger, Held},
			"twice in the ledger":      {[]int{0, 1, 1}, 200, p.checkLedger, Broken},
		} {
			list = ""
			for _, i := range test.shown {
				list += c[i].body
			}
			status = test.status
			wantEnd(t, name, test.want, test.look)
		}
		p.silent, list, status = false, "", 200
		wantEnd(t, "a response that says what was made", Held, func() { w.made("") })
		p.effects.routes[0] = routeEffects{list: reference.Tasks, measure: "n/n"}
		list = `{"n": 7}`
		w = p.watch(c[2])
		list = `{"n": 9}`
		if got := w.count(); got != 2 || w.pushedOut() {
			t.Errorf("a number: got %d", got)
		}
		wantEnd(t, "a number", Held, p.checkLedger)
	})
}

// A list may be behind by some seconds, also that of a key whose resources the
// first look did not make.
func TestWatchWaits(t *testing.T) {
	list, late := "", time.Time{}
	served(t, func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().After(late) {
			_, _ = io.WriteString(w, list)
		}
	}, func(p *probe) {
		p.effects.routes = []routeEffects{{list: reference.Tasks, perItem: 1}}
		c := p.create(0, p.key("sandbox"))
		list, late = c.body, time.Now().Add(6*time.Second)
		wantEnd(t, "late", Held, func() { p.watch(c).exactly(1, "") })
	})
}
