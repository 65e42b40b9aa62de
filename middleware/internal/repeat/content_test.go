package repeat_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
)

// A fingerprint outlives the program that made it: a retry that reaches the
// next version must match.
func TestFingerprintIsStable(t *testing.T) {
	create := repeat.Content{
		Method: "POST", Host: "api.example.com", Target: "/api/v1/tasks?dry_run=1",
		ContentType: "application/json", Body: []byte(`{"title":"Call back"}`),
	}
	large := create
	large.Range = "bytes=0-9"
	large.Body = []byte(strings.Repeat("body", 1000))
	// The longest body that is hashed with the rest, and the shortest that is
	// hashed by itself: 64 bytes stand before them, of 512.
	inline, hashed := create, create
	inline.Body, hashed.Body = []byte(strings.Repeat("b", 448)), []byte(strings.Repeat("b", 449))
	for want, c := range map[string]repeat.Content{
		"c61a268e5f65defb2d84a34b7ebf2775dee94d19f814249e379fad06d17eed51": create,
		"bdac377626ca4c91ee3653567c7bf37cb842d1c48b7ea39879c5d72d8b5e0a2a": large,
		"9b4c0b80a74c546bbfa664fe4de371d6da4a432e19ecb8fdc09cde2f04578b22": inline,
		"9766c6bb13b9b41dcffd236143c6245cca7e45697d0f295bbd84e8453b4a720d": hashed,
	} {
		got := c.Fingerprint()
		if hex.EncodeToString(got[:]) != want {
			t.Errorf("got %x, want %s", got, want)
		}
	}
}

func TestFingerprintTellsApart(t *testing.T) {
	type content = repeat.Content
	long := strings.Repeat("x", 600)
	body := func(s string) content { return content{Body: []byte(s)} }
	for _, pair := range []struct {
		name string
		a, b content
	}{
		{"method", content{Method: "POST"}, content{Method: "PUT"}},
		{"host", content{Host: "a.example.com"}, content{Host: "b.example.com"}},
		{"port", content{Host: "example.com:8080"}, content{Host: "example.com"}},
		{"a port that ends as a default one does", content{Host: "example.com:8443"}, content{Host: "example.com:8"}},
		{"path", content{Target: "/a"}, content{Target: "/b"}},
		{"the case of the path", content{Target: "/a"}, content{Target: "/A"}},
		{"an escape in the path", content{Target: "/a%2Fb"}, content{Target: "/a/b"}},
		{"a final slash", content{Target: "/a"}, content{Target: "/a/"}},
		{"query", content{Target: "/?dry_run=1"}, content{Target: "/"}},
		{"an empty query", content{Target: "/?"}, content{Target: "/"}},
		{"the order of the query", content{Target: "/?a=1&b=2"}, content{Target: "/?b=2&a=1"}},
		{"range", content{Range: "bytes=0-9"}, content{Range: "bytes=10-19"}},
		{"content type", content{ContentType: "application/json"}, content{ContentType: "text/plain"}},
		{"a parameter of the content type", content{ContentType: "text/html; x=a"},
			content{ContentType: "text/html; x=b"}},
		{"body", body("a"), body("b")},
		{"white space in JSON", body(`{"a":1}`), body(`{"a": 1}`)},
		{"numbers that floats merge", body(`1.0000000000000001`), body(`1`)},
		{"a final zero byte", body("a\x00"), body("a")},
		{"the last byte of a large body", body(long + "a"), body(long + "b")},
		{"method and host", content{Method: "P", Host: "ost"}, content{Method: "Post"}},
		{"host and path", content{Host: "a", Target: "/b"}, content{Host: "a/b"}},
		{"path and range", content{Target: "/a", Range: "b"}, content{Target: "/ab"}},
		{"range and content type", content{Range: "a", ContentType: "b"}, content{Range: "ab"}},
		{"content type and body", content{ContentType: "a", Body: []byte("b")}, content{ContentType: "ab"}},
		{"two parts exchanged", content{Range: "a", ContentType: "b"}, content{Range: "b", ContentType: "a"}},
		{"lengths in the text", content{Range: "\x01a"}, content{ContentType: "\x01a"}},
		{"long parts", content{Target: "/" + long, Range: long}, content{Target: "/" + long + long}},
	} {
		a, again, b := pair.a.Fingerprint(), pair.a.Fingerprint(), pair.b.Fingerprint()
		if a == b {
			t.Errorf("%s: %+v and %+v have the same fingerprint", pair.name, pair.a, pair.b)
		}
		if a != again {
			t.Errorf("%s: %+v has two fingerprints", pair.name, pair.a)
		}
	}
}

func TestFingerprintOfTheSameRequest(t *testing.T) {
	for _, test := range []struct{ name, host, target, sameHost, sameTarget string }{
		{"the first and the last letter", "AZ.example.com", "/", "az.example.com", "/"},
		{"the case of the host", "API.example.com", "/", "api.Example.COM", "/"},
		{"the port of http", "api.example.com:80", "/", "api.example.com", "/"},
		{"the port of https", "api.example.com:443", "/", "api.example.com", "/"},
		{"an IPv6 address with a port", "[2001:DB8::80]:443", "/", "[2001:db8::80]", "/"},
		{"an absolute target", "api.example.com", "http://api.example.com/a/b?c=d://e", "api.example.com",
			"/a/b?c=d://e"},
		{"an absolute target without a path", "api.example.com", "https://api.example.com", "api.example.com", "/"},
		{"an absolute target without a host", "", "file:///a/b", "", "/a/b"},
		{"an absolute target with a query alone", "example.com", "https://example.com?a=b", "example.com", "/?a=b"},
	} {
		a := repeat.Content{Host: test.host, Target: test.target}.Fingerprint()
		b := repeat.Content{Host: test.sameHost, Target: test.sameTarget}.Fingerprint()
		if a != b {
			t.Errorf("%s: %s%s and %s%s have two fingerprints", test.name, test.host, test.target, test.sameHost,
				test.sameTarget)
		}
	}
}

func FuzzFingerprint(f *testing.F) {
	f.Add("POST", "/api/v1/tasks", "", "application/json", "{}")
	f.Add("POST", "", "a=b", "", "\x00")
	f.Fuzz(func(t *testing.T, method, target, ranges, contentType, body string) {
		of := func(parts ...string) [32]byte {
			return repeat.Content{
				// A slash before it keeps the target from being read as an
				// absolute URI.
				Method: parts[0], Target: "/" + parts[1], Range: parts[2],
				ContentType: parts[3], Body: []byte(parts[4]),
			}.Fingerprint()
		}
		p := []string{method, target, ranges, contentType, body}
		// The same bytes, cut in another place.
		all := strings.Join(p, "")
		for _, q := range [][]string{
			{all, "", "", "", ""}, {"", all, "", "", ""}, {"", "", "", "", all}, {"", ranges, target, "", ""},
			{method, target, ranges, body, contentType}, {method + target, "", ranges, contentType, body},
			{method, target + ranges, "", contentType, body}, {method, target, ranges + contentType, "", body},
			{method, target, ranges, contentType + body, ""},
		} {
			same := slices.Equal(p, q)
			if (of(p...) == of(q...)) != same {
				t.Errorf("%q and %q: same fingerprint %t, same parts %t", p, q, !same, same)
			}
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	large := repeat.Content{
		Method: "POST", Host: "api.example.com:443", Target: "/api/v1/tasks?dry_run=1",
		ContentType: "application/json", Body: make([]byte, 10_000),
	}
	huge := []string{`"` + strings.Repeat(`\\`, 1<<19) + `"`}
	for name, f := range map[string]func(){
		"Fingerprint":       func() { large.Fingerprint() },
		"Key":               func() { repeat.Key([]string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}) },
		"Key of a megabyte": func() { repeat.Key(huge) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}
