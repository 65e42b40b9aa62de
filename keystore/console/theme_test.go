package console_test

import (
	"html"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACw="

// Each field of a Theme changes the page, the style sheet or the policy.
func TestTheme(t *testing.T) {
	const page, sheet, policy = "page", "sheet", "policy"
	for _, row := range []struct {
		theme    console.Theme
		in, want string
	}{
		{console.Theme{}, page, "<title>API keys · Developer</title>"},
		{console.Theme{Title: "Harbour & Co"}, page, "<title>API keys · Harbour &amp; Co</title>"},
		{console.Theme{Title: "Harbour & Co"}, page, `<a class="brand" href="./">Harbour &amp; Co</a>`},
		{console.Theme{Logo: "/logo.svg"}, page, `<img src="/logo.svg" alt="">`},
		{console.Theme{Logo: "/logo.svg"}, policy, "; img-src 'self'; "},
		{console.Theme{Logo: "https://cdn.example.com/a/logo.svg?v=2"}, policy, "; img-src https://cdn.example.com; "},
		{console.Theme{Logo: pixel}, page, `<img src="` + pixel + `" alt="">`},
		{console.Theme{Logo: pixel}, policy, "; img-src data:; "},
		{console.Theme{Scheme: "dark"}, page, `<meta name="color-scheme" content="dark">`},
		{console.Theme{Scheme: "light"}, sheet, ":root { color-scheme: light; }"},
		{console.Theme{Font: `"Inter Display", Arial, sans-serif`}, sheet,
			`:root { --font: "Inter Display", Arial, sans-serif; }`},
		{console.Theme{Radius: "0px"}, sheet, ":root { --radius: 0px; }"},
		{console.Theme{Radius: "12px"}, sheet, ":root { --radius: 12px; }"},
		{console.Theme{Compact: true}, sheet, "--control: 1.875rem"},
		{console.Theme{NoHeader: true}, page, `<body class="bare">`},
		{console.Theme{Light: console.Palette{Accent: "#0a7f5a"}}, sheet, ":root { --accent-light: #0a7f5a; }"},
		{console.Theme{Light: console.Palette{Accent: "#0a7f5a"}}, sheet, ":root { --accent-dark: #0a7f5a; }"},
		{console.Theme{Dark: console.Palette{Accent: "#ffcc00"}}, sheet, ":root { --accent-ink-dark: #000000; }"},
		{console.Theme{Dark: console.Palette{Ground: "#000000"}}, sheet, ":root { --ground-dark: #000000; }"},
		{console.Theme{Light: console.Palette{Surface: "#FFFDF5"}}, sheet, ":root { --surface-light: #FFFDF5; }"},
		{console.Theme{Light: console.Palette{Ink: "#000000"}}, sheet, ":root { --ink-light: #000000; }"},
	} {
		b := newBench(t, func(o *console.Options) { o.Theme = row.theme })
		got := b.get("/")
		text := map[string]string{page: got.text, sheet: b.get("/console.css").text,
			policy: got.Header.Get("Content-Security-Policy")}[row.in]
		if !strings.Contains(text, row.want) {
			t.Errorf("%+v: the %s has no %s:\n%.1500s", row.theme, row.in, row.want, text)
		}
		if has := strings.Contains(got.text, "<header"); has == row.theme.NoHeader {
			t.Errorf("%+v: the page has a header: %t", row.theme, has)
		}
		if strings.Contains(html.UnescapeString(got.text), "ZgotmplZ") {
			t.Errorf("%+v: a value was refused by the template", row.theme)
		}
	}
}

// Text on the accent is white while that has a contrast of 4.5, and then black.
// Second text can be read while the ink has one of 12. The rows are just above
// and below.
func TestContrast(t *testing.T) {
	for _, row := range []struct {
		accent, ink, ground string
		black, refused      bool
	}{
		{"#767676", "#ffffff", "#000000", false, false},
		{"#777777", "#ffffff", "#000000", true, false},
		{"#ee0000", "#ffffff", "#000000", false, false},
		{"#ef0000", "#ffffff", "#000000", true, false},
		{"#008a00", "#ffffff", "#000000", false, false},
		{"#008b00", "#ffffff", "#000000", true, false},
		{"#0000ff", "#c9c9c9", "#090909", false, false},
		{"#0000ff", "#c9c9c9", "#0a0a0a", false, true},
		{"#0000ff", "#cbcbcb", "#0c0c0c", false, false},
		{"#0000ff", "#cbcbcb", "#0d0d0d", false, true},
		{"#0000ff", "#333333", "#f9f9f9", false, false},
		{"#0000ff", "#343434", "#fafafa", false, true},
	} {
		black := false
		said := panicOf(func() {
			b := newBench(t, func(o *console.Options) {
				o.Theme.Dark = console.Palette{Accent: row.accent, Ink: row.ink, Ground: row.ground, Surface: row.ground}
			})
			black = strings.Contains(b.get("/console.css").text, "--accent-ink-dark: #000000")
		})
		if black != row.black || (said != "") != row.refused {
			t.Errorf("%+v: black: %t, said: %q", row, black, said)
		}
	}
}

// With a Path all links begin with it, whichever part of it a proxy takes off
// and whether or not the address ends in a slash.
func TestPath(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	c := console.New(issuer, anybody, console.Options{Path: "/settings/keys"})
	for _, path := range []string{"/", "/new", "/settings/keys", "/settings/keys/", "/settings/keys/new"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			t.Errorf("%s: got %d to %q", path, w.Code, w.Header().Get("Location"))
		}
		for _, m := range linked.FindAllStringSubmatch(w.Body.String(), -1) {
			if !strings.HasPrefix(m[1], "/settings/keys/") {
				t.Errorf("%s links to %s", path, m[1])
			}
		}
	}
	// What a page or a file of the console begins with may be the Path too.
	c = console.New(issuer, anybody, console.Options{Path: "/console"})
	for _, path := range []string{"/console.css", "/console/console.js", "/console", "/new"} {
		w := httptest.NewRecorder()
		if c.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
			t.Errorf("%s: got %d, want 200", path, w.Code)
		}
	}
}
