package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each row is the body of "func f(a, b int, s []int) (int, error)".
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		body string
		want []string
	}{
		{"if a < b { panic(a) }", []string{"a < b → !(a < b)", "a < b → a <= b", "panic(a) → deleted"}},
		{"if a == b { panic(a) }", []string{"a == b → a != b", "panic(a) → deleted"}},
		{"if !ok { panic(a) }", []string{"!ok → ok", "panic(a) → deleted"}},
		{"for ok && no { panic(a) }", []string{"ok && no → !(ok && no)", "ok && no → ok || no", "panic(a) → deleted"}},
		{"switch { case ok: panic(a) }", []string{"ok → !(ok)", "panic(a) → deleted"}},
		{"defer g()", []string{"defer g() → deleted"}},
		{"a = b", []string{"a = b → deleted"}},
		{"a += b", []string{"a += b → deleted", "a += b → a -= b"}},
		{"a++; a++", []string{"a++ → a--", "a++ → a-- #2"}},
		{"c := 7; _ = c", []string{"_ = c → deleted", "c := 7 → c := 8", "c := 7 → c := 6"}},
		{"if a == 0x0 { panic(a) }", []string{"a == 0x0 → a != 0x0", "a == 0x0 → a == 0x1", "a == 0x0 → a == (-0x1)",
			"panic(a) → deleted"}},
		{"return a, err", []string{"return a, err → return 0, err", "return a, err → return a, nil"}},
		{`return 0, ""`, []string{`return 0, "" → return 1, ""`, `return 0, "" → return (-1), ""`}},
		{"_ = ok && a > 5", []string{
			"_ = ok && a > 5 → deleted", "ok && a > 5 → ok || a > 5", "a > 5 → a >= 5", "a > 5 → a > 6", "a > 5 → a > 4",
		}},
		{"a = g(s[b-1])", []string{
			"a = g(s[b-1]) → deleted", "b-1 → b+1", "g(s[b-1]) → g(s[b-2])", "g(s[b-1]) → g(s[b-0])",
		}},
		{"return g()", []string{"return g() → return 0, nil"}},
		{"g(func() bool { return ok })", []string{"g(func() bool { return ok }) → deleted", "return ok → return false"}},
		{"g(func() bool { return false })", []string{"g(func() bool { return false }) → deleted",
			"return false → return true"}},
		{"g(func() [2]int { return s })", []string{
			"g(func() [2]int { return s }) → deleted", "return s → return *new([2]int)",
		}},
		{"c := make(chan int, 1); _ = c", []string{"_ = c → deleted"}},
		{"c := make([]int, a, 4); _ = c", []string{"_ = c → deleted"}},
		{"c := make([]int, 4); _ = c", []string{
			"_ = c → deleted", "make([]int, 4) → make([]int, 5)", "make([]int, 4) → make([]int, 3)",
		}},
	} {
		src := []byte("package p\n\nfunc f(a, b int, s []int) (int, error) { " + tt.body + " }\n")
		mutants, err := find("p.go", "p.go", src)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, m := range mutants {
			got = append(got, m.before+" → "+m.after)
			changed := slices.Concat(src[:m.start], []byte(m.new), src[m.end:])
			if _, err := parser.ParseFile(token.NewFileSet(), "p.go", changed, 0); err != nil {
				t.Errorf("%s does not parse: %v\n%s", m, err, changed)
			}
		}
		want = slices.Clone(tt.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", tt.body, got, want)
		}
	}
}

func TestReadEquivalents(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       string // a text, or none if the file is refused
	}{
		{"with its line", "a.go:12: f: x → y\n\tNobody sees x.\n", "a.go: f: x → y"},
		{"without its line", "# none\n\na.go: f: x → y\n\tNobody\n\tsees x.\n", "a.go: f: x → y"},
		{"one reason for two", "a.go: f: x → y\na.go: f: y → z\n\tNobody sees them.\n", "a.go: f: x → y"},
		{"all of an expression", "a.go: f: x\n\tNobody sees x.\n", "a.go: f: x"},
		{"ten", strings.Repeat("a.go: f: x → y\n\tNobody sees x.\n", 10), "a.go: f: x → y"},
		{"eleven", strings.Repeat("a.go: f: x → y\n\tNobody sees x.\n", 11), ""},
		{"without a reason", "a.go:12: f: x → y\n\na.go: f: y → z\n\tNobody sees y.\n", ""},
		{"without a reason at the end", "a.go:12: f: x → y\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "equivalents.txt")
			if err := os.WriteFile(name, []byte(tt.file), 0o644); err != nil {
				t.Fatal(err)
			}
			known, err := readEquivalents(name)
			if (err == nil) != (tt.want != "") || err == nil && !known[tt.want] {
				t.Errorf("got %v, %v, want %q", known, err, tt.want)
			}
		})
	}
}
