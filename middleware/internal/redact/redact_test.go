package redact_test

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/redact"
)

func without(text string, secrets ...string) string {
	var s redact.Secrets
	for _, secret := range secrets {
		s.Add(secret)
	}
	return s.Redact(text)
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestSecret(t *testing.T) {
	const random = "0123456789abcDEF"
	const secret = "svc_live_" + random
	tests := []struct {
		name, secret, text, want string
	}{
		{"plain", secret, "a " + secret + " b " + secret, "a [secret] b [secret]"},
		{"capitals", secret, strings.ToUpper(secret), "[secret]"},
		{"without its prefix", secret, "key " + random + ".", "key [secret]."},
		{"short without its prefix", secret[:24], "key " + random[:15] + ".", "key [secret]."},
		{"bytes", secret, fmt.Sprint([]byte(secret)), "[[secret]]"},
		{"bytes with commas", secret, strings.ReplaceAll(fmt.Sprint([]byte(secret)), " ", ", "), "[[secret]]"},
		{"an array in JSON", secret, strings.ReplaceAll(fmt.Sprint([]byte(secret)), " ", ","), "[[secret]]"},
		{"bytes in JSON", random, inBase64(random), "[secret]g=="},
		{"in one byte of JSON", random, inBase64("." + random), "Lj[secret]Y="},
		{"in two bytes of JSON", random, inBase64(".." + random), "Li4[secret]"},
		{"a piece in JSON", random, inBase64(random[4:12]), "[secret]I="},
		{"seven numbers", secret, "1 2 3 4 5 6 7", "1 2 3 4 5 6 7"},
		{"too short to be one", "abc", "abc", "abc"},
		{"just long enough", "abcd", "xabcdx", "x[secret]x"},
		{"a part of a short one", "abcdefg", "abcdef bcdefg", "abcdef bcdefg"},
		{"none", secret, "İ and nothing else", "İ and nothing else"},

		// Eight characters in a row are as much as the whole.
		{"cut off", secret, secret[:17], "[secret]"},
		{"little more than its prefix", secret, secret[:10], "[secret]"},
		{"its prefix", secret, "svc_live_", "[secret]"},
		{"the start", random, "<" + random[:8] + ">", "<[secret]>"},
		{"less", random, "<" + random[:7] + ">", "<" + random[:7] + ">"},
		{"the middle", random, "<" + random[3:11] + ">", "<[secret]>"},
		{"the end", random, "<" + random[8:] + ">", "<[secret]>"},
		{"two pieces", random, random[:8] + random[:9], "[secret]"},
		{"a piece as bytes", random, fmt.Sprint([]byte(random[4:12])), "[[secret]]"},
	}
	for _, tt := range tests {
		if got := without(tt.text, tt.secret); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	const long = "0123456789abcdef"
	for _, tt := range []struct{ name, value, text, want string }{
		{"Bearer", "Bearer " + long, "Bearer " + long, "Bearer [secret]"},
		{"Bearer with =", "Bearer " + long + "=0123", "the token " + long + "=", "the token [secret]"},
		{"Bearer with padding", "bearer  " + long + "==", long + "==", "[secret]"},
		{"another scheme", "Token " + long, long, "[secret]"},
		{"a password", "Basic " + inBase64("me:password1"), "me password1", "me [secret]"},
		{"of Basic, as sent", "Basic " + inBase64("me:password12"), inBase64("me:password12"), "[secret]"},
		{"cookies", "a=" + long + "; session=abcd", "abcd " + long, "[secret] [secret]"},
		{"cookies, as sent", "a=" + long + "; session=abcd", "a=" + long + "; session=abcd",
			"a=[secret]; session=[secret]"},
		{"the name of a cookie", "session_of_the_user=" + long, "no session_of_the_user=", "no session_of_the_user="},
		{"a quoted cookie", `a="short"`, "short", "[secret]"},
	} {
		var s redact.Secrets
		s.AddHeaders(tt.value, tt.value)
		if got := s.Redact(tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestBeginningElsewhere: a header that holds the beginning of a key does not take
// the key's shape away.
func TestBeginningElsewhere(t *testing.T) {
	s := redact.Secrets{Shapes: regexp.MustCompile(`svc_live_[0-9A-Za-z]{8,}`)}
	s.Add("svc_live_0")
	if got := s.Redact("a svc_live_0123456789abcDEF b"); got != "a [secret] b" {
		t.Errorf("got %q", got)
	}
}

// TestBounds: a text that is too long is cut, and one with too many secrets is
// left out. Neither keeps a secret.
func TestBounds(t *testing.T) {
	const secret = "0123456789abcdef"
	var s redact.Secrets
	s.AddHeaders(secret)
	s.Shapes = regexp.MustCompile(`key_[a-z]{8,}`)
	for _, tt := range []struct {
		before int
		text   string
		cut    int
	}{
		{redact.MaxText - 16, secret, 100},
		{redact.MaxText - 8, secret, 108},
		{redact.MaxText - 12, "key_abcdefghijkl", 104},
	} {
		dots := strings.Repeat(".", tt.before)
		want := fmt.Sprintf("%s[secret] [and %d bytes]", dots, tt.cut)
		if got := s.Redact(dots + tt.text + strings.Repeat(".", 100)); got != want {
			t.Errorf("got …%s, want …%s", got[redact.MaxText-20:], want[redact.MaxText-20:])
		}
	}
	full := func(n int) *redact.Secrets {
		var s redact.Secrets
		s.AddHeaders(secret, strings.Repeat("x", n))
		return &s
	}
	room := redact.MaxSecrets - len(secret) - 16
	if got := full(room).Redact(secret); got != "[secret]" {
		t.Errorf("%d bytes: got %q", redact.MaxSecrets, got)
	}
	if got := full(room + 1).Redact(secret + " boom"); strings.Contains(got, "0123") || got != redact.LeftOut {
		t.Errorf("one byte more: got %q", got)
	}
	// A value that comes again is searched among those before.
	for n, want := range map[int]string{1000: "[secret]", redact.MaxSecrets / 8: redact.LeftOut} {
		var s redact.Secrets
		s.AddHeaders(slices.Repeat([]string{secret}, n)...)
		if got := s.Redact(secret); got != want {
			t.Errorf("one value %d times: got %q, want %q", n, got, want)
		}
	}
}

// The work has a bound, whatever the headers hold: it is counted in what is
// allocated, the index of the secrets and copies of the text.
func TestWork(t *testing.T) {
	const mebibyte = 1 << 20
	for name, values := range headers(mebibyte) {
		text := strings.Join(values, ";")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		allocs := testing.AllocsPerRun(1, func() { work(values, text) }) // calls it twice
		runtime.ReadMemStats(&after)
		if bytes := (after.TotalAlloc - before.TotalAlloc) / 2; allocs > 150_000 || bytes > 10*mebibyte {
			t.Errorf("%s: %.0f allocations of %d bytes, want at most 150,000 of 10 MiB", name, allocs, bytes)
		}
	}
}

// headers are values of n bytes in all: some that pass redact.MaxSecrets, and
// some that just do not, which cost most.
func headers(n int) map[string][]string {
	cookies := strings.Repeat("name=value1234567890; ", n/22)
	var many []string
	for i := range n / 16 {
		many = append(many, fmt.Sprintf("%016d", i))
	}
	var random strings.Builder
	for i := 0; random.Len() < n; i++ {
		fmt.Fprintf(&random, "%x", i*i*i)
	}
	most := redact.MaxSecrets - 8
	return map[string][]string{
		"a Cookie":         {cookies},
		"tokens":           {"Bearer " + random.String()},
		"many headers":     many,
		"parts":            {strings.Repeat("abcd;", n/5)},
		"most of a Cookie": {cookies[:most]},
		"most of a token":  {random.String()[:most]},
		"most headers":     many[:redact.MaxSecrets/24],
		"most parts":       {strings.Repeat("abcd;", most/5)},
		"hexadecimal":      {random.String()[:most/2], fmt.Sprintf("%x", random.String()[:most/4-16])},
	}
}

func work(values []string, text string) string {
	var s redact.Secrets
	s.AddHeaders(values...)
	return s.Redact(text)
}

// FuzzSecret checks that no eight characters in a row of a secret are left, as
// text or as bytes.
func FuzzSecret(f *testing.F) {
	f.Add("0123456789abcdef", uint8(3), uint8(12), "before", "after")
	f.Add("svc_live_0123456789abcdefghijklmn", uint8(0), uint8(33), "", "")
	f.Add("0\x800000000", uint8(1), uint8(9), "\xcd", "A")
	f.Fuzz(func(t *testing.T, secret string, from, to uint8, before, after string) {
		i, j := min(int(from), len(secret)), min(int(to), len(secret))
		if j-i < 8 || len(secret) > 200 || len(before)+len(after) > 200 ||
			strings.Contains(secret, "_") || strings.ContainsAny(before+after, "0123456789") {
			return
		}
		part := secret[i:j]
		bytes := []byte(part)
		for _, form := range []string{part, fmt.Sprint(bytes), strings.ReplaceAll(fmt.Sprint(bytes), " ", ",")} {
			if strings.Contains(before+after+"[secret]", form) {
				continue
			}
			if got := without(before+form+after, secret); strings.Contains(got, form) {
				t.Errorf("%q in %q: got %q", secret, before+form+after, got)
			}
		}
	})
}
