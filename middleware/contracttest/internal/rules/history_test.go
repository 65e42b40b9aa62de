package rules

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

// A history judges each response by those before it, and what is refused by
// the list.
func TestHistory(t *testing.T) {
	var answers []string // status, a space and the body
	list := ""
	served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			_, _ = io.WriteString(w, list)
			return
		}
		status, body, _ := strings.Cut(answers[0], " ")
		answers = answers[1:]
		w.WriteHeader(map[string]int{"200": 200, "201": 201, "400": 400, "409": 409, "422": 422}[status])
		_, _ = io.WriteString(w, body)
	}, func(p *probe) {
		p.target.Creates = append(p.target.Creates, Create{Path: reference.Deliverables, Body: `{"name":"{{random}}"}`})
		p.effects.routes = []routeEffects{{list: reference.Tasks, perItem: 1}, {list: reference.Deliverables, perItem: 1}}
		for name, test := range map[string]struct {
			answers string
			order   string // a create, its body elsewhere, another body
			shown   string // in the list
			want    Status
		}{
			"a repeat":                    {"201 x; 201 x", "aa", "a", Held},
			"another response":            {"201 x; 201 y", "aa", "a", Broken},
			"another status":              {"201 x; 200 x", "aa", "a", Broken},
			"refused":                     {"400 x; 400 y", "aa", "", Held},
			"refused and made":            {"400 x", "a", "a", Broken},
			"refused, then made":          {"422 x; 201 x", "aa", "", Broken},
			"in progress, then made":      {"409 x; 201 x", "aa", "", Held},
			"after another body":          {"201 x; 422 y; 201 x", "aba", "a", Held},
			"another body made":           {"201 x; 422 y; 201 x", "aba", "ab", Broken},
			"lost to another body":        {"201 x; 422 y; 422 y", "aba", "a", Broken},
			"elsewhere":                   {"201 x; 201 y", "ae", "a", Held},
			"elsewhere, the same":         {"201 x; 201 x", "ae", "", Broken},
			"elsewhere, of equal numbers": {"201 x; 201 x", "ae", "a", Held},
			"elsewhere, refused":          {"201 x; 422 y", "ae", "a", Held},
		} {
			one := p.create(0, p.full())
			other, elsewhere := p.another(one), p.create(1, p.full()).keyedWith(one.key())
			elsewhere.body, elsewhere.marker = one.body, one.marker
			all := map[rune]creation{'a': one, 'b': other, 'e': elsewhere}
			answers, list = strings.Split(test.answers, "; "), ""
			for _, c := range test.shown {
				list += all[c].body
			}
			wantEnd(t, name, test.want, func() {
				h := history{p: p}
				for _, c := range test.order {
					h.send("it", all[c])
				}
			})
		}
	})
}
