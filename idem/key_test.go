package idem_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

// A Key outlives the program that made it: one made by another version for the
// same request must be the same.
func TestNewKeyIsStable(t *testing.T) {
	const want = "992236845cd09199efde935d14d756a28ff4238760938aea5af98a1f8b92ea92"
	if k := idem.NewKey("organization", "production", "", "", "", "key"); hex.EncodeToString(k[:]) != want {
		t.Errorf("got %x, want %s", k, want)
	}
}

func TestNewKeyKeepsPartsApart(t *testing.T) {
	long := strings.Repeat("a", 600)
	lists := [][]string{
		{}, {""}, {"key"}, {"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}, {"a", "bc"},
		{"ab", "c"}, {"a\x00", "b"}, {"a", "\x00b"}, {"a", "B"}, {"a", long}, {long, "b"}, {long, ""},
		{"org", "production", "", "", "", "key"}, {"org", "production", "", "", "key", ""},
		{"org", "production", "key"}, {"orgproduction", "", "", "", "", "key"}, {"", "org", "production", "", "", "key"},
		{"\x03org", "production", "", "", "", "key"}, {"org", "\nproduction", "", "", "", "key"},
		{"org", "production", "a", "b", "", "key"}, {"org", "production", "b", "a", "", "key"},
	}
	keys := map[idem.Key][]string{}
	for _, list := range lists {
		k := idem.NewKey(list...)
		if same, ok := keys[k]; ok {
			t.Errorf("%q and %q: got one key, want two", list, same)
		}
		keys[k] = list
	}
}
