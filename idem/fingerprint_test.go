package idem_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

type parts struct{ method, path, query, contentType, body string }

func (p parts) sum() idem.Sum {
	return idem.Fingerprint(p.method, p.path, p.query, p.contentType, []byte(p.body))
}

// A fingerprint outlives the program that made it: a retry that reaches the next version must match.
func TestFingerprintIsStable(t *testing.T) {
	const want = "4935c0dcf31c438327a1ab1a7f29afde36d42d24ebb8c6fb2315db4f7ba2a98a"
	got := parts{"POST", "/api/v1/tasks", "dry_run=1", "application/json", `{"title":"Call back"}`}.sum()
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

func TestFingerprintTellsApart(t *testing.T) {
	long := strings.Repeat("x", 600)
	for _, pair := range []struct {
		name string
		a, b parts
	}{
		{"method", parts{method: "POST"}, parts{method: "PUT"}},
		{"path", parts{path: "/a"}, parts{path: "/b"}},
		{"an escape in the path", parts{path: "/a%2Fb"}, parts{path: "/a/b"}},
		{"a final slash", parts{path: "/a"}, parts{path: "/a/"}},
		{"query", parts{query: "dry_run=1"}, parts{}},
		{"the order of the query", parts{query: "a=1&b=2"}, parts{query: "b=2&a=1"}},
		{"content type", parts{contentType: "application/json"}, parts{contentType: "text/plain"}},
		{"a parameter of the content type", parts{contentType: "multipart/form-data; boundary=a"}, parts{contentType: "multipart/form-data; boundary=b"}},
		{"body", parts{body: "a"}, parts{body: "b"}},
		{"white space in JSON", parts{body: `{"a":1}`}, parts{body: `{"a": 1}`}},
		{"numbers that floats merge", parts{body: `1.0000000000000001`}, parts{body: `1`}},
		{"a final zero byte", parts{body: "a\x00"}, parts{body: "a"}},
		{"method and path", parts{method: "P", path: "OST/"}, parts{method: "PO", path: "ST/"}},
		{"path and query", parts{path: "/a", query: "b"}, parts{path: "/ab"}},
		{"query and content type", parts{query: "a", contentType: "b"}, parts{query: "ab"}},
		{"content type and body", parts{contentType: "a", body: "b"}, parts{contentType: "ab"}},
		{"two parts exchanged", parts{path: "a", query: "b"}, parts{path: "b", query: "a"}},
		{"lengths in the text", parts{path: "\x00\x00\x00\x00\x00\x00\x00\x01a"}, parts{query: "\x00\x00\x00\x00\x00\x00\x00\x01a"}},
		{"long parts", parts{path: long, query: long}, parts{path: long + long}},
	} {
		a, again, b := pair.a.sum(), pair.a.sum(), pair.b.sum()
		if a == b {
			t.Errorf("%s: %q and %q have the same fingerprint", pair.name, pair.a, pair.b)
		}
		if a != again {
			t.Errorf("%s: %q has two fingerprints", pair.name, pair.a)
		}
	}
}

func FuzzFingerprint(f *testing.F) {
	f.Add("POST", "/api/v1/tasks", "", "application/json", "{}")
	f.Add("POST", "", "a=b", "", "\x00")
	f.Fuzz(func(t *testing.T, method, path, query, contentType, body string) {
		p := parts{method, path, query, contentType, body}
		// The same bytes, cut in another place.
		all := method + path + query + contentType + body
		for _, q := range []parts{
			{method: all}, {path: all}, {body: all}, {path: query, query: path}, {method, path, query, body, contentType},
			{method + path, "", query, contentType, body}, {method, path + query, "", contentType, body}, {method, path, query + contentType, "", body},
			{method, path, query, contentType + body, ""},
		} {
			if (p.sum() == q.sum()) != (p == q) {
				t.Errorf("%q and %q: same fingerprint %t, same parts %t", p, q, p.sum() == q.sum(), p == q)
			}
		}
	})
}
