package console

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

//go:embed console.css
var css string

// A Theme is how the pages look. The zero value is the package's own look,
// light or dark as the reader prefers. [New] panics on a value that is none of
// those named here, or with which text could not be read.
type Theme struct {
	Title string // in the header, and in the browser's after that of each page; empty: "Developer"

	// Logo is the address of an image, 24 px high in front of the Title: a path
	// of the same host such as "/logo.svg", an https address, or a data: URL in
	// Base64. Empty: none.
	Logo string

	// Light and Dark are the colours. Scheme is "light" or "dark" if the pages
	// have only one of them. Empty: as the reader prefers.
	Light, Dark Palette
	Scheme      string

	Font     string // a list of font families as in CSS; empty: the system's own
	Radius   string // of the corners of buttons, from "0px" to "24px"; empty: "8px"
	Compact  bool   // lower rows and controls, except on narrow screens
	NoHeader bool   // for a page that shows the console in a frame of its own
}

// A Palette is the colours of a Theme in light or in dark, as "#3346c8". Empty:
// the package's own; the Accent of Dark: that of Light.
type Palette struct {
	Accent  string // of the main buttons; links and marks take a shade of it that can be read
	Ground  string // behind all
	Surface string // of cards, tables and controls
	Ink     string // of text, with a contrast of 12 or more; second text and lines are between Ink and Surface
}

// The package's own colours, as in the style sheet.
var (
	light = Palette{"#3346c8", "#f6f7f9", "#ffffff", "#16191f"}
	dark  = Palette{"#4b5fe0", "#0e1116", "#161a21", "#e9ecf1"}
)

// A look is a Theme as pages and their style sheet take it.
type look struct {
	Theme
	Logo    template.URL
	css     string // the whole style sheet
	sources string // of images, as in the Content-Security-Policy
}

func (t Theme) look() look {
	t.Title, t.Dark.Accent = cmp.Or(t.Title, "Developer"), cmp.Or(t.Dark.Accent, t.Light.Accent)
	l := look{Theme: t, Logo: template.URL(t.Logo), css: css, sources: imageSource(t.Logo)}
	// A value that matches its pattern cannot end the declaration.
	set := func(field, value, pattern, want, declaration string) {
		if value == "" {
			return
		}
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(value) {
			refuseTheme(field, value, "not "+want)
		}
		l.css += ":root { " + declaration + ": " + value + "; }\n"
	}
	t.Light.set(set, "Light", light)
	t.Dark.set(set, "Dark", dark)
	set("Scheme", t.Scheme, "light|dark", `"light" or "dark"`, "color-scheme")
	set("Radius", t.Radius, "1?[0-9]px|2[0-4]px", `a length from "0px" to "24px"`, "--radius")
	const family = `("[A-Za-z0-9 _-]+"|[A-Za-z][A-Za-z0-9 _-]*)`
	set("Font", t.Font, family+`(, ?`+family+`)*`, `a list such as "Inter, sans-serif"`, "--font")
	if t.Compact {
		l.css += "@media (min-width: 40.01rem) { :root { --control: 1.875rem; --row: .4375rem; } }\n"
	}
	return l
}

func (p Palette) set(set func(field, value, pattern, want, declaration string), name string, or Palette) {
	const hex, want = "#[0-9A-Fa-f]{6}", `a colour such as "#3346c8"`
	for _, c := range []option{{p.Accent, "Accent"}, {p.Ground, "Ground"}, {p.Surface, "Surface"}, {p.Ink, "Ink"}} {
		set(name+"."+c.Name, c.Value, hex, want, strings.ToLower("--"+c.Name+"-"+name))
	}
	ink := cmp.Or(p.Ink, or.Ink)
	for _, under := range []string{cmp.Or(p.Ground, or.Ground), cmp.Or(p.Surface, or.Surface)} {
		if contrast(ink, under) < 12 { // so that second text has 4.5, of WCAG 2.2, 1.4.3
			refuseTheme(name+".Ink", ink, "too near to "+under+" to be read")
		}
	}
	if contrast(cmp.Or(p.Accent, or.Accent), "#ffffff") < 4.5 {
		set(name, "#000000", hex, want, "--accent-ink-"+strings.ToLower(name))
	}
}

func refuseTheme(field, value, why string) {
	panic(fmt.Sprintf("console: Theme: %s %q is %s", field, value, why))
}

var dataURL = regexp.MustCompile(`^data:[a-z]+/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+=*$`)

// imageSource returns the directive of the Content-Security-Policy by which the
// pages load an image.
func imageSource(address string) string {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return ""
	case dataURL.MatchString(address):
		return "img-src data:; "
	case err != nil || !addressText.MatchString(address) || u.User != nil || strings.ContainsAny(u.Host, ";,'*"):
	case u.Scheme == "https" && u.Host != "":
		return "img-src https://" + u.Host + "; "
	case u.Scheme == "" && u.Host == "" && address[0] == '/':
		return "img-src 'self'; "
	}
	refuseTheme("Logo", address, "neither a path, nor an https address, nor Base64 in a data: URL")
	return ""
}

// contrast is the contrast ratio of two colours, as WCAG defines it.
func contrast(a, b string) float64 {
	luminance := func(hex string) (l float64) {
		n, _ := strconv.ParseUint(hex[1:], 16, 0) // the form was looked at
		for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
			v := float64(n>>(8*i)&255) / 255
			if v <= 0.04045 {
				l += weight * v / 12.92
			} else {
				l += weight * math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return l
	}
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}
