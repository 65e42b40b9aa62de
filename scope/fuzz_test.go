package scope_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

// Whatever a database holds, each name is either one of the registry's, byte
// for byte, or unknown.
func FuzzParse(f *testing.F) {
	f.Add("tasks:read\ntasks:write\nfuture:thing")
	f.Add("TASKS:READ\n*\n\ntasks:read ")
	f.Fuzz(func(t *testing.T, text string) {
		r := scope.Default()
		var names []scope.Name
		for line := range strings.SplitSeq(text, "\n") {
			names = append(names, scope.Name(line))
		}
		s, unknown := r.Parse(names)
		for _, n := range names {
			if s.Has(n) != r.Known(n) {
				t.Errorf("Parse(%q).Has(%q) = %v, Known says %v", names, n, s.Has(n), r.Known(n))
			}
			if !r.Known(n) {
				if len(unknown) == 0 || unknown[0] != n {
					t.Fatalf("Parse(%q) left %q out of the unknown names", names, n)
				}
				unknown = unknown[1:]
			}
		}
		if len(unknown) > 0 {
			t.Errorf("Parse(%q) invented unknown names %q", names, unknown)
		}
		if again, none := r.Parse(s.Names()); again != s || none != nil {
			t.Errorf("Parse(%q.Names()) = %v and %q unknown, want the same set", s, again, none)
		}
	})
}

func FuzzSuggest(f *testing.F) {
	f.Add("task:read")
	f.Add(strings.Repeat("x", 65))
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := scope.Default().Suggest(scope.Name(text)); ok != scope.Default().Known(n) {
			t.Errorf("Suggest(%q) = %q, %v, want a known scope or none", text, n, ok)
		}
	})
}
