package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// A Theme is how the pages look. The zero value is the package's own look,
// light or dark as the reader prefers. [New] panics on a value that is none of
// those named here, or with which text could not be read.
type Theme struct {
	// Title stands in the header, and in the browser's title after that of each
	// page. Empty: "Developer".
	Title string

	// Logo is the address of an image, 24 px high in front of the Title: a path
	// of the same host such as "/logo.svg", an https address, or a data: URL of
	// an image in Base64. LogoDark takes its place on a dark ground. Empty: none,
	// and the Logo.
	Logo, LogoDark string

	// Light and Dark are the colours. Scheme is "light" or "dark" if the pages
	// have only one of them. Empty: as the reader prefers.
	Light, Dark Palette
	Scheme      string

	// Font is a list of font families as in CSS. FontFile is the address of a
	// WOFF2 file with the first of them, in the forms of a Logo. Empty: the
	// system's own, and no file.
	Font, FontFile string

	// Radius is that of the corners of buttons, from "0" to "24px". Cards have
	// half as much again. Empty: "8px".
	Radius string

	Compact  bool // lower rows and controls, except on narrow screens
	NoHeader bool // for a page that shows the console in a frame of its own
}

// A Palette is the colours of a Theme in light or in dark, as "#rrggbb". Empty:
// the package's own; the Accent of Dark: that of Light.
type Palette struct {
	Accent  string // of the main buttons; links and marks take the shade of it that can be read
	Ground  string // behind all
	Surface string // of cards, tables and controls
	Ink     string // of text; second text and lines are between Ink and Surface
}

const fontFamily = `(?:"[A-Za-z0-9 _-]+"|[A-Za-z][A-Za-z0-9 _-]*)` // of fonts

var (
	light = Palette{"#3346c8", "#f6f7f9", "#ffffff", "#16191f"}
	dark  = Palette{"#4b5fe0", "#0e1116", "#161a21", "#e9ecf1"}

	fontList = regexp.MustCompile(`^(?:` + fontFamily + `, ?)*` + fontFamily + `$`)
	dataURL  = regexp.MustCompile(`^data:[a-z]+/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+=*$`)
)

// A look is a Theme as pages and their style sheet take it.
type look struct {
	Theme
	Logo          template.URL
	LogoDark      template.Srcset
	css           string // the whole style sheet
	images, fonts string // their places, as in the Content-Security-Policy
}

func (t Theme) look() look {
	if t.Title == "" {
		t.Title = "Developer"
	}
	if t.Dark.Accent == "" {
		t.Dark.Accent = t.Light.Accent
	}
	l := look{Theme: t, Logo: template.URL(t.Logo), LogoDark: template.Srcset(t.LogoDark)}
	l.images = strings.TrimSpace(place("Logo", t.Logo) + " " + place("LogoDark", t.LogoDark))
	l.fonts = place("FontFile", t.FontFile)
	var b strings.Builder
	b.WriteString(css)
	set := func(name, value string) { b.WriteString(":root { " + name + ": " + value + "; }\n") }
	if t.Light != (Palette{}) || t.Dark != (Palette{}) {
		l, d := t.Light.shades("Light", light), t.Dark.shades("Dark", dark)
		for i, name := range []string{"--accent", "--ground", "--surface", "--ink", "--accent-ink", "--link"} {
			set(name, "light-dark("+l[i].String()+", "+d[i].String()+")")
		}
	}
	switch t.Scheme {
	case "":
	case "light", "dark":
		set("color-scheme", t.Scheme)
		if l.LogoDark = ""; t.Scheme == "dark" && t.LogoDark != "" {
			l.Logo = template.URL(t.LogoDark)
		}
	default:
		refuseTheme("Scheme", t.Scheme, `neither "light" nor "dark"`)
	}
	if t.Font != "" {
		if !fontList.MatchString(t.Font) {
			refuseTheme("Font", t.Font, "no list of font families")
		}
		set("--font", t.Font)
	}
	if t.FontFile != "" {
		family, _, _ := strings.Cut(t.Font, ",")
		if family == "" {
			refuseTheme("FontFile", t.FontFile, "there without a Font")
		}
		b.WriteString(`@font-face { font-family: ` + family + `; src: url("` + t.FontFile + `") format("woff2"); ` +
			"font-weight: 100 900; font-display: swap; }\n")
	}
	if t.Radius != "" {
		n, err := strconv.ParseUint(strings.TrimSuffix(t.Radius, "px"), 10, 8)
		if err != nil || n > 24 || n > 0 && !strings.HasSuffix(t.Radius, "px") {
			refuseTheme("Radius", t.Radius, `not from "0" to "24px"`)
		}
		set("--radius", strconv.FormatUint(n, 10)+"px")
	}
	if t.Compact {
		b.WriteString("@media (min-width: 40.01rem) { :root { --control: 1.875rem; --row: .4375rem; } }\n")
	}
	l.css = b.String()
	return l
}

func refuseTheme(field, value, why string) {
	panic(fmt.Sprintf("console: Theme: %s %q is %s", field, value, why))
}

// place returns from where the pages load an address, as a source of the
// Content-Security-Policy.
func place(field, address string) string {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return ""
	case dataURL.MatchString(address):
		return "data:"
	case err != nil || strings.ContainsAny(address, "\"'\\<>(); \t\r\n,"):
	case u.Scheme == "https" && u.Host != "" && u.User == nil:
		return "https://" + u.Host
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return "'self'"
	}
	refuseTheme(field, address, "neither a path, nor an https address, nor Base64 in a data: URL")
	return ""
}

// shades returns the palette's accent, ground, surface and ink, and the shades
// of the accent for text on it and for links.
func (p Palette) shades(name string, standard Palette) (shades [6]color) {
	pick := func(field, value, or string) color {
		if value == "" {
			value = or
		}
		c, err := parseColor(value)
		if err != nil {
			refuseTheme(name+"."+field, value, `no colour such as "#3346c8"`)
		}
		return c
	}
	accent, ground := pick("Accent", p.Accent, standard.Accent), pick("Ground", p.Ground, standard.Ground)
	surface, ink := pick("Surface", p.Surface, standard.Surface), pick("Ink", p.Ink, standard.Ink)
	for field, c := range map[string]color{"Ground": ground, "Surface": surface} {
		// The red, green and amber of messages are read on these.
		if l := c.luminance(); name == "Light" && l < 0.75 || name == "Dark" && l > 0.05 {
			refuseTheme(name+"."+field, c.String(), "not "+strings.ToLower(name)+" enough to read on")
		}
		if ratio := ink.mix(quietShare, surface).contrast(c); ratio < readable {
			refuseTheme(name+".Ink", ink.String(),
				fmt.Sprintf("too near to the %s: second text has a contrast of %.1f", field, ratio))
		}
	}
	white, black := color{1, 1, 1}, color{}
	on := white
	if accent.contrast(white) < readable && accent.contrast(black) > accent.contrast(white) {
		on = black
	}
	link := accent
	for share := 1.0; share > 0; share -= 0.05 {
		link = accent.mix(share, ink)
		if min(link.contrast(ground), link.contrast(surface), link.contrast(link.mix(softShare, surface))) >= readable {
			break
		}
	}
	return [...]color{accent, ground, surface, ink, on, link}
}

const (
	readable   = 4.5  // the contrast of text: WCAG 2.2, 1.4.3
	quietShare = 0.68 // of the ink, in --quiet
	softShare  = 0.09 // of the link's colour, in --accent-soft
)

// A color is red, green and blue from 0 to 1.
type color [3]float64

func parseColor(text string) (c color, err error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 24)
	if len(text) != len("#rrggbb") || text[0] != '#' {
		err = strconv.ErrSyntax
	}
	return color{float64(n>>16) / 255, float64(n>>8&255) / 255, float64(n&255) / 255}, err
}

func (c color) String() string {
	return fmt.Sprintf("#%02x%02x%02x", int(c[0]*255+.5), int(c[1]*255+.5), int(c[2]*255+.5))
}

// mix is color-mix(in srgb, c share, d) of CSS.
func (c color) mix(share float64, d color) color {
	for i := range c {
		c[i] = c[i]*share + d[i]*(1-share)
	}
	return c
}

func (c color) luminance() float64 {
	for i, v := range c {
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}

// contrast is the contrast ratio of WCAG.
func (c color) contrast(d color) float64 {
	a, b := c.luminance(), d.luminance()
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}
