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
	with := func(keys ...string) func(*Target) {
		return func(to *Target) {
			for i := 0; i < len(keys); i += 2 {
				to.Keys[keys[i]] = keys[i+1]
			}
		}
	}
	for name, test := range map[string]struct {
		change func(*Target)
		want   []string
	}{
		"none": {func(*Target) {}, nil},
		"a scheme": {func(to *Target) { to.URL = "ftp://kit.test" },
			[]string{`"ftp://kit.test" is not the URL of a server`}},
		"no host":    {func(to *Target) { to.URL = "http://" }, []string{"is not the URL"}},
		"no URL":     {func(to *Target) { to.URL = "http://%" }, []string{"is not the URL"}},
		"a query":    {func(to *Target) { to.URL += "?a" }, []string{"has a user, a query or a fragment"}},
		"a fragment": {func(to *Target) { to.URL += "#a" }, []string{"has a user, a query"}},
		"a user":     {func(to *Target) { to.URL = "http://a@kit.test" }, []string{"has a user, a query"}},
		"the base": {func(to *Target) { to.URL += "/api/v1/" },
			[]string{"ends in /api/v1, which the paths have too: leave it out"}},
		"a path": {func(to *Target) { to.Creates[0].Path = "/a" },
			[]string{`the path "/a" does not begin with /api/v1/ and a name`}},
		"a list":      {func(to *Target) { to.Creates[0].List = "/api/v1/?" }, []string{"the path"}},
		"two creates": {func(to *Target) { to.Creates = append(to.Creates, to.Creates[0]) }, nil},
		"three creates": {func(to *Target) { to.Creates = append(to.Creates, to.Creates[0], to.Creates[0]) },
			[]string{"there are 3 routes that create"}},
		"no key":      {func(to *Target) { clear(to.Keys) }, []string{"there is no full key"}},
		"eight bytes": {with("full", "12345678"), nil},
		"seven bytes": {with("full", "1234567"), []string{"the key full is too short"}},
		"a key twice": {with("other", live), []string{"the keys full and other are the same"}},
		"the last byte": {with("full", live+"a", "other", live+"b"),
			[]string{"full and other differ in their last"}},
		"another last byte":   {with("full", live+"b", "other", live+"c"), nil},
		"a space":             {with("full", "1234567 8"), []string{"the key full has a space or a character"}},
		"a tilde":             {with("full", "1234567~8"), nil},
		"an exclamation mark": {with("full", "1234567!8"), nil},
		"a control character": {with("full", "1234567\x7f8"), []string{"the key full has a space"}},
		"a newline":           {with("other", live+"9\n"), []string{"the key other has a space"}},
		"another name": {with("fulll", live+"9"),
			[]string{`there is no key called "fulll"; the names are full, none`}},
		"a sandbox":             {with("sandbox", test, "other", live+"9"), nil},
		"a test key for full":   {with("full", test, "other", test+"9"), nil},
		"a live key beside it":  {with("full", test, "other", live), []string{"the key other is a live key"}},
		"a live sandbox":        {with("sandbox", live+"9"), []string{"the key sandbox is a live key"}},
		"a live sandbox-none":   {with("sandbox-none", live+"9"), []string{"the key sandbox-none is a live key"}},
		"swapped":               {with("other", test, "sandbox", live+"9"), []string{"sandbox and other are swapped"}},
		"full swapped":          {with("full", test, "sandbox", live+"9"), []string{"full and sandbox are swapped"}},
		"a word in front":       {with("other", "test_svc_12345678"), nil},
		"a word behind":         {with("other", "svc_12345678_test"), nil},
		"a word in the secret":  {with("other", "svc_live_12345678_test_9"), nil},
		"two test keys":         {with("other", test, "none", test+"9"), []string{"none is a test", "other is a test"}},
		"a test key, a sandbox": {with("full", test, "sandbox", test+"9"), []string{"the key full is a test key"}},
		"no environment":        {with("other", "acme_prod_12345678"), nil},
		"two words":             {with("other", "acme_test"), nil},
		"without":               {func(to *Target) { to.Without = []string{"other", "rate-limit", "list"} }, nil},
		"without an offer": {func(to *Target) { to.Without = []string{"create"} },
			[]string{"create is both given and left out"}},
		"without what is no offer": {func(to *Target) { to.Without = []string{"full"} },
			[]string{`nothing called "full" can be left out; the names are none, worker,`}},
	} {
		to := Target{URL: "http://kit.test", Keys: map[string]string{"full": live}}
		to.Creates = []Create{{Path: "/api/v1/a"}}
		test.change(&to)
		_, err := to.complete()
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if !slices.EqualFunc(got, test.want, strings.Contains) || slices.ContainsFunc(got, holdsKey) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func holdsKey(mistake string) bool { return strings.Contains(mistake, "1234567") }
