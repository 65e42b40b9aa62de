package idem_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

// A Key outlives the program that made it: one made by another version for the same request must be the same.
func TestNewKeyIsStable(t *testing.T) {
	k := idem.NewKey("organization", "key")
	const (
		partition = "af3a1bb312bf8430055d0f513e3a27c4c54c776603c80ffc73917abc0094e211"
		digest    = "3af8f2f38b49b13ec461a7e1fc2fd24e2cea4e6b8f0466f28d1c0cd5bf630507"
	)
	if got := hex.EncodeToString(k.Partition[:]); got != partition {
		t.Errorf("got partition %s, want %s", got, partition)
	}
	if got := hex.EncodeToString(k.Digest[:]); got != digest {
		t.Errorf("got digest %s, want %s", got, digest)
	}
}

func TestNewKeyKeepsApart(t *testing.T) {
	pairs := [][2]string{
		{"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}, {"a", "bc"}, {"ab", "c"}, {"a\x00", "b"},
		{"a", "\x00b"}, {"a", "B"}, {"a", strings.Repeat("b", 600)}, {strings.Repeat("a", 600), "b"}, {strings.Repeat("a", 600), ""},
	}
	keys, digests := map[idem.Key][2]string{}, map[idem.Sum][2]string{}
	for _, pair := range pairs {
		k := idem.NewKey(pair[0], pair[1])
		if k != idem.NewKey(pair[0], pair[1]) {
			t.Errorf("%q: made twice, got two keys", pair)
		}
		if same, ok := keys[k]; ok {
			t.Errorf("%q and %q: got one key, want two", pair, same)
		}
		if same, ok := digests[k.Digest]; ok {
			t.Errorf("%q and %q: got one digest, want two", pair, same)
		}
		keys[k], digests[k.Digest] = pair, pair
	}
}

func TestNewTokenIsNew(t *testing.T) {
	seen := map[idem.Token]bool{{}: true}
	for range 1000 {
		token := idem.NewToken()
		if seen[token] {
			t.Fatalf("got the token %x again", token)
		}
		seen[token] = true
	}
}

func TestKeysDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := make([]byte, 10_000)
	huge := []string{`"` + strings.Repeat(`\\`, 1<<19) + `"`}
	for name, f := range map[string]func(){
		"NewKey":                 func() { idem.NewKey("organization", "8e03978e-40d5-43dd-bc93-6894a57f9324") },
		"NewToken":               func() { idem.NewToken() },
		"Fingerprint":            func() { idem.Fingerprint("POST", "/api/v1/tasks", "dry_run=1", "application/json", body) },
		"ParseKey of a megabyte": func() { idem.ParseKey(huge) },
		"ParseKey":               func() { idem.ParseKey([]string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}
