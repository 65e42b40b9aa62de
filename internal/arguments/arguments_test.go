package arguments_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/internal/arguments"
)

func TestAbsent(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		want bool
	}{
		"nil":                     {nil, true},
		"a nil pointer":           {(*int)(nil), true},
		"a nil function":          {(func())(nil), true},
		"a pointer":               {new(int), false},
		"a function":              {func() {}, false},
		"a value":                 {0, false},
		"a map, which nil can be": {map[string]int(nil), false},
	} {
		if got := arguments.Absent(c.v); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
