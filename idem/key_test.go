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

func TestNewKeyKeepsApart(t *testing.T) {
	pairs := [][2]string{
		{"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}, {"a", "bc"}, {"ab", "c"}, {"a\x00", "b"},
		{"a", "\x00b"}, {"a", "B"}, {"a", strings.Repeat("b", 600)}, {strings.Repeat("a", 600), "b"}, {strings.Repeat("a", 600), ""},
	}
	keys := map[idem.Key][2]string{}
	for _, pair := range pairs {
		k := idem.NewKey(pair[0], pair[1])
		if k != idem.NewKey(pair[0], pair[1]) {
			t.Errorf("%q: made twice, got two keys", pair)
		}
		if same, ok := keys[k]; ok {
			t.Errorf("%q and %q: got one key, want two", pair, same)
		}
		keys[k] = pair
	}
}

func TestNewKeyKeepsPartsApart(t *testing.T) {
	lists := [][]string{
		{"org", "production", "", "", "", "key"}, {"org", "production", "", "", "key", ""}, {"org", "production", "", "key", "", ""},
		{"org", "production", "key"}, {"orgproduction", "", "", "", "", "key"}, {"", "org", "production", "", "", "key"},
		{"org", "sandbox", "", "", "", "key"}, {"\x03org", "production", "", "", "", "key"}, {"org", "\nproduction", "", "", "", "key"},
		{"org", "production", "a", "b", "", "key"}, {"org", "production", "b", "a", "", "key"}, {"org", "production", "ab", "", "", "key"},
		{"key"}, {""}, {}, {"", ""}, {strings.Repeat("a", 300), "production", "", "", "", "key"},
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

func TestNewKeyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	n := testing.AllocsPerRun(100, func() { idem.NewKey("organization", "8e03978e-40d5-43dd-bc93-6894a57f9324") })
	if n != 0 {
		t.Errorf("NewKey allocates %v times, want 0", n)
	}
}
