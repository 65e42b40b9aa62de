package idem_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

var keyA, keyB = sealKey('a'), sealKey('b')

func sealKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func seal(keys ...string) *idem.Seal {
	s, err := idem.ParseSeal(strings.Join(keys, ","))
	if err != nil {
		panic(err)
	}
	return s
}

// sealed is the payload that a Runner with a Seal stores for a request.
func sealed(t *testing.T, s *idem.Seal, req idem.Claim, payload string) []byte {
	t.Helper()
	store := newMemory()
	mustSettle(t, mustRun(t, newRunner(store, idem.Options{Seal: s}), req), answer(payload))
	return stored(t, store, req)
}

func stored(t *testing.T, s idem.Store, req idem.Claim) []byte {
	t.Helper()
	r, err := s.Begin(t.Context(), idem.Claim{Key: req.Key, Token: newToken(), Lease: 1, Retention: 1})
	if err != nil || r.State != idem.Done {
		t.Fatalf("the store: got %v, error %v, want done", r.State, err)
	}
	return r.Payload
}

// Neither payload nor summary is in the store, and who repeats the request gets
// the answer: while it is saved, from the same process and from another.
func TestSeal(t *testing.T) {
	faulty(t, idem.Options{Seal: seal(keyA)}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Next(idemtest.Settle, slices.Repeat([]idemtest.Fault{idemtest.LoseAnswer}, 3)...) // what is sent again is the same
		_ = mustRun(t, r, request).Settle(t.Context(), answer("created"))
		mustReplay(t, r, request, "created")
		mustRest(t, r)
		mustReplay(t, r, request, "created")
		mustReplay(t, newRunner(f, idem.Options{Seal: seal(keyA)}), request, "created")
	})
	j := newJoiner()
	joins := newRunner(j, idem.Options{Join: true, Seal: seal(keyA)})
	mustSettle(t, mustRun(t, joins, request), answer("created"))
	mustReplay(t, joins, request, "created")
	if b := stored(t, j, request); bytes.Contains(b, []byte("created")) {
		t.Errorf("joined: stored is %q", b)
	}
	// A budget that has room for one payload: the others are summaries.
	s := newShop(t, &idem.Memory{Budget: 8_000})
	r := newRunner(s, idem.Options{Seal: seal(keyA)})
	for n := range 3 {
		settlement := answer(strings.Repeat("created", 500))
		settlement.Summary = []byte("the summary")
		mustSettle(t, mustRun(t, r, numberedRequest(n)), settlement)
	}
	for n, want := range []string{"the summary", "the summary", strings.Repeat("created", 500)} {
		if b := stored(t, s, numberedRequest(n)); bytes.Contains(b, []byte("created")) ||
			bytes.Contains(b, []byte("summary")) {
			t.Errorf("request %d: stored is %q", n, b)
		}
		if got := mustGet(t, r, numberedRequest(n), idem.Done); string(got.Payload) != want || got.Retained != (n == 2) {
			t.Errorf("request %d: got %.20q, retained %t, want %.20q", n, got.Payload, got.Retained, want)
		}
	}
}

// What a reply that is in the store already is to a Seal. A list that begins with
// none leaves replies as they are: servers of the fleet that have no Seal yet read
// them.
func TestSealedReply(t *testing.T) {
	moved := numberedRequest(1)
	byA, byB := sealed(t, seal(keyA), request, "created"), sealed(t, seal(keyB), request, "created")
	none := sealed(t, seal("none", keyA), request, "created")
	if string(none) != "created" {
		t.Errorf("stored is %q, want the reply as it is", none)
	}
	type row struct {
		name   string
		keys   []string
		stored []byte
		opens  bool
	}
	rows := []row{
		{"the same key", []string{keyA}, byA, true},
		{"an older key", []string{keyB, keyA}, byA, true},
		{"the first of two seals", []string{keyA}, sealed(t, seal(keyA, keyB), request, "created"), true},
		{"a key that comes later", []string{"none", keyA}, byA, true},
		{"a key that was removed", []string{keyB}, byA, false},
		{"a removed key, and answers without a seal are read", []string{keyB, "none"}, byA, false},
		{"no seal", []string{keyA}, []byte("created"), false},
		{"no seal, from before", []string{keyA, "none"}, []byte("created"), true},
		{"no seal, while nothing is sealed", []string{"none", keyA}, none, true},
		{"an answer of another request", []string{keyA}, sealed(t, seal(keyA), moved, "created"), false},
		{"the id of another key", []string{keyA, keyB}, slices.Concat(byA[:4], byB[4:12], byA[12:]), false},
		{"nothing", []string{keyA}, nil, false},
		{"a byte more", []string{keyA, "none"}, append(bytes.Clone(byA), 0), false},
	}
	for n := range byA { // each bit of a byte is as good as another
		changed := bytes.Clone(byA)
		changed[n] ^= 1
		rows = append(rows, row{fmt.Sprint("byte ", n, " changed"), []string{keyA}, changed, false})
		rows = append(rows, row{fmt.Sprint("cut at ", n), []string{keyA}, byA[:n], false})
	}
	for _, row := range rows {
		store := newMemory()
		mustSettle(t, mustRun(t, newRunner(store, idem.Options{}), request), answer(string(row.stored)))
		r, log := logged(store, idem.Options{Seal: seal(row.keys...)})
		got := mustGet(t, r, request, idem.Done)
		want, lines := "", 1
		if row.opens {
			want, lines = "created", 0
		}
		if string(got.Payload) != want || got.Retained != row.opens || strings.Count(log.String(), "level=ERROR") != lines {
			t.Errorf("%s: got %q, retained %t, and the log %s", row.name, got.Payload, got.Retained, log)
		}
	}
}

// Sealed replies outlive the program that sealed them, and two versions may run
// beside each other.
func TestSealIsFrozen(t *testing.T) {
	key := bytes.Repeat([]byte{'a'}, 32)
	id := sha256.Sum256(append([]byte("sallyport seal"), key...))
	sealed, head := sealed(t, seal(keyA), request, "created"), "\xffsl\x01"+string(id[:8])
	if !strings.HasPrefix(string(sealed), head) || len(sealed) != 40+len("created") {
		t.Fatalf("stored is %q, want %q, a nonce and what GCM makes", sealed, head)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := aead.Open(nil, sealed[12:24], sealed[24:], request.Key[:]); string(b) != "created" {
		t.Errorf("got %q, error %v, want the reply", b, err)
	}
}

// What was evicted without a summary is nothing that does not open.
func TestSealOfNothing(t *testing.T) {
	s := newShop(t, &idem.Memory{Budget: 2000})
	r, log := logged(s, idem.Options{Seal: seal(keyA)})
	mustSettle(t, mustRun(t, r, request), answer(strings.Repeat("created", 500)))
	if got := mustGet(t, r, request, idem.Done); len(got.Payload) > 0 || got.Retained || log.Len() > 0 {
		t.Errorf("got %q, retained %t, and the log %s", got.Payload, got.Retained, log)
	}
	if b := stored(t, s, request); len(b) > 0 {
		t.Errorf("stored is %q, want nothing in place of no summary", b)
	}
	// An answer that is empty is sealed like any other.
	mustSettle(t, mustRun(t, r, numberedRequest(1)), answer(""))
	mustReplay(t, r, numberedRequest(1), "")
}

func TestParseSeal(t *testing.T) {
	for _, test := range []struct {
		keys  string
		wrong []string
	}{
		{keyA, nil},
		{" " + keyA + " ,\n" + keyB + ", none\n", nil},
		{"", []string{"key 1"}},
		{"none", []string{"no key"}},
		{keyA + ",", []string{"key 2"}},
		{keyA[:40], []string{"key 1"}}, // 30 bytes
		{"secret," + keyA + "," + base64.StdEncoding.EncodeToString(make([]byte, 33)), []string{"key 1", "key 3"}},
	} {
		s, err := idem.ParseSeal(test.keys)
		if (s == nil) != (err != nil) || (err == nil) != (test.wrong == nil) {
			t.Errorf("%q: got a Seal %t, error %v", test.keys, s != nil, err)
		}
		text := fmt.Sprint(err)
		for _, wrong := range test.wrong {
			if !strings.Contains(text, wrong) || strings.Contains(text, "secret") {
				t.Errorf("%q: got error %v, want one of %s", test.keys, err, wrong)
			}
		}
	}
	// In a row: a token, which is random, may have one of its bytes.
	printed := regexp.MustCompile("97,? 97,? 97|aaaaaaaa|0x61, 0x61, 0x61|61616161|1633771873")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f"} {
		s, o := seal(keyA), idem.Options{Seal: seal(keyA)}
		for _, value := range []any{s, *s, o, idem.NewRunner(&idem.Memory{}, o), struct{ field any }{s},
			struct{ field any }{*s}} {
			if text := fmt.Sprintf(verb, value); printed.MatchString(text) {
				t.Errorf("%T prints its key by %s: %s", value, verb, text)
			}
		}
	}
}
