package middleware_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the tests got")

// golden is a file of testdata with one section for each of a test's rows.
type golden struct {
	path string

	mu       sync.Mutex
	order    []string
	sections map[string]string
	changed  bool
}

const goldenMark = "=== "

// openGolden reads testdata/name.golden. With -update the sections that were
// checked take their place in it when the test has ended.
func openGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{path: filepath.Join("testdata", name+".golden"), sections: map[string]string{}}
	text, err := os.ReadFile(g.path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq("\n"+string(text), "\n"+goldenMark) {
		title, body, ok := strings.Cut(part, "\n")
		if ok && title != "" {
			g.order = append(g.order, title)
			g.sections[title] = strings.TrimRight(body, "\n")
		}
	}
	t.Cleanup(func() {
		if *update && g.changed {
			g.write(t)
		}
	})
	return g
}

func (g *golden) write(t *testing.T) {
	var text strings.Builder
	for _, title := range g.order {
		fmt.Fprintf(&text, "%s%s\n%s\n", goldenMark, title, g.sections[title])
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// check compares a section with what the test got.
func (g *golden) check(t *testing.T, title, got string) {
	t.Helper()
	got = strings.TrimRight(got, "\n")
	g.mu.Lock()
	defer g.mu.Unlock()
	want, has := g.sections[title]
	if has && got == want {
		return
	}
	if *update {
		if !has {
			g.order = append(g.order, title)
		}
		g.sections[title], g.changed = got, true
		return
	}
	t.Errorf("%s, section %q:\ngot\n%s\n\nwant\n%s\n\n(go test -update rewrites it)", g.path, title, got, want)
}

// only fails for sections that no row has any more.
func (g *golden) only(t *testing.T, titles []string) {
	t.Helper()
	kept := g.order[:0:0]
	for _, title := range g.order {
		switch {
		case slices.Contains(titles, title):
			kept = append(kept, title)
		case *update:
			g.changed = true
		default:
			t.Errorf("%s has a section %q, which no row has", g.path, title)
		}
	}
	if *update {
		g.order = kept
	}
}

var xids = regexp.MustCompile(`\b[0-9a-v]{20}\b`)

// dump writes a response as it reads on the wire, fields sorted, request ids
// masked.
func dump(a answer) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", strings.TrimSpace(a.Status))
	names := make([]string, 0, len(a.Header))
	for name := range a.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range a.Header[name] {
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&text, "\n%s", a.body)
	return xids.ReplaceAllString(text.String(), "<request id>")
}
