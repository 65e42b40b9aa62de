package rules

import (
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	creates := []Create{{Path: "/api/v1/a"}, {Path: "/api/v1/b", Type: "text/plain", List: "/api/v1/b"}}
	to := Target{URL: "http://kit.test/", Keys: map[string]string{"full": "12345678"}, Creates: creates}
	base, err := to.complete()
	if err != nil || base.Host != "kit.test" {
		t.Fatalf("got %v, %v", base, err)
	}
	if to.Base != "/api/v1" || to.Read != "/api/v1/account" || to.RequestIDHeader != "Svc-Request-Id" ||
		to.Burst != 2000 || to.URL != "http://kit.test" {
		t.Errorf("got %+v", to)
	}
	if to.Creates[0].Type != "application/json" || to.Creates[1].Type != "text/plain" || creates[0].Type != "" {
		t.Errorf("got %+v of %+v", to.Creates, creates)
	}
	if want := []string{"full", "create", "second-create", "second-list"}; !slices.Equal(to.offered(), want) {
		t.Errorf("got %q", to.offered())
	}
	to = Target{URL: "https://kit.test/in/", Keys: to.Keys, Base: "/v3/", Read: "/v3/me",
		RequestIDHeader: "x-id", Burst: 7}
	if _, err := to.complete(); err != nil || to.Base != "/v3" || to.Read != "/v3/me" || to.RequestIDHeader != "X-Id" ||
		to.Burst != 7 || to.URL != "https://kit.test/in" {
		t.Errorf("got %+v, %v", to, err)
	}
}

// Each mistake is said, without a key, and none where there is none.
func TestMistakes(t *testing.T) {
	const live, test = "svc_live_12345678", "svc_test_12345678"
	at := func(url string) func(*Target) { return func(to *Target) { to.URL = url } }
	without := func(names ...string) func(*Target) { return func(to *Target) { to.Without = names } }
	creates := func(all ...Create) func(*Target) { return func(to *Target) { to.Creates = all } }
	with := func(keys ...string) func(*Target) {
		return func(to *Target) {
			for i := 0; i < len(keys); i += 2 {
				to.Keys[keys[i]] = keys[i+1]
			}
		}
	}
	a := Create{Path: "/api/v1/a"}
	for name, test := range map[string]struct {
		change func(*Target)
		want   string // the mistakes, one a line
	}{
		"none":                  {func(*Target) {}, ""},
		"a scheme":              {at("ftp://kit.test"), `"ftp://kit.test" is not the URL of a server`},
		"no host":               {at("http://"), "is not the URL"},
		"no URL":                {at("http://%"), "is not the URL"},
		"a query":               {at("http://kit.test?a"), "has a user, a query or a fragment"},
		"a fragment":            {at("http://kit.test#a"), "has a user, a query"},
		"a user":                {at("http://a@kit.test"), "has a user, a query"},
		"the base":              {at("http://kit.test/api/v1/"), "ends in /api/v1, which the paths have too: leave it out"},
		"a path":                {creates(Create{Path: "/a"}), `the path "/a" does not begin with /api/v1/ and a name`},
		"a list":                {creates(Create{Path: "/api/v1/a", List: "/api/v1/?"}), "the path"},
		"two creates":           {creates(a, a), ""},
		"three creates":         {creates(a, a, a), "there are 3 routes that create"},
		"no key":                {func(to *Target) { clear(to.Keys) }, "there is no full key"},
		"eight bytes":           {with("full", "12345678"), ""},
		"seven bytes":           {with("full", "1234567"), "the key full is too short"},
		"a key twice":           {with("other", live), "the keys full and other are the same"},
		"the last byte":         {with("full", live+"a", "other", live+"b"), "full and other differ in their last"},
		"another last byte":     {with("full", live+"b", "other", live+"c"), ""},
		"a space":               {with("full", "1234567 8"), "the key full has a space or a character"},
		"a tilde":               {with("full", "1234567~8"), ""},
		"an exclamation mark":   {with("full", "1234567!8"), ""},
		"a control character":   {with("full", "1234567\x7f8"), "the key full has a space"},
		"a newline":             {with("other", live+"9\n"), "the key other has a space"},
		"another name":          {with("fulll", live+"9"), `there is no key called "fulll"; the names are full, none`},
		"a sandbox":             {with("sandbox", test, "other", live+"9"), ""},
		"a test key for full":   {with("full", test, "other", test+"9"), ""},
		"a live key beside it":  {with("full", test, "other", live), "the key other is a live key"},
		"a live sandbox":        {with("sandbox", live+"9"), "the key sandbox is a live key"},
		"a live sandbox-none":   {with("sandbox-none", live+"9"), "the key sandbox-none is a live key"},
		"swapped":               {with("other", test, "sandbox", live+"9"), "sandbox and other are swapped"},
		"full swapped":          {with("full", test, "sandbox", live+"9"), "full and sandbox are swapped"},
		"a word in front":       {with("other", "test_svc_12345678"), ""},
		"a word behind":         {with("other", "svc_12345678_test"), ""},
		"a word in the secret":  {with("other", "svc_live_12345678_test_9"), ""},
		"two test keys":         {with("other", test, "none", test+"9"), "none is a test\nother is a test"},
		"a test key, a sandbox": {with("full", test, "sandbox", test+"9"), "the key full is a test key"},
		"no environment":        {with("other", "acme_prod_12345678"), ""},
		"two words":             {with("other", "acme_test"), ""},
		"several": {func(to *Target) { to.URL, to.Read, to.Keys = "nowhere", "account", map[string]string{"fulll": "x"} },
			"is not the URL of a server\nthe path \"account\"\nthere is no full key\n\"fulll\""},
		"without":                  {without("other", "rate-limit", "list"), ""},
		"without an offer":         {without("create"), "create is both given and left out"},
		"without what is no offer": {without("full"), `nothing called "full" can be left out; the names are none, worker,`},
	} {
		to := Target{URL: "http://kit.test", Keys: map[string]string{"full": live}}
		to.Creates = []Create{a}
		test.change(&to)
		_, err := to.complete()
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		var want []string
		if test.want != "" {
			want = strings.Split(test.want, "\n")
		}
		if !slices.EqualFunc(got, want, strings.Contains) || slices.ContainsFunc(got, holdsKey) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func holdsKey(mistake string) bool { return strings.Contains(mistake, "1234567") }
