package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// panicOf returns what f panics with, or "".
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func TestNewPanicsWithoutWhatItNeeds(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	for name, f := range map[string]func(){
		"issuer": func() { console.New(nil, admin, console.Options{}) },
		"admin":  func() { console.New(issuer, nil, console.Options{}) },
	} {
		if text := panicOf(f); !strings.HasPrefix(text, "console: ") {
			t.Errorf("without %s: got %q, want a panic", name, text)
		}
	}
}

// What cannot be stored, can never be offered, would end a declaration, load
// from elsewhere or not be read is refused at start-up, with the name of the
// option.
func TestMistakes(t *testing.T) {
	type mistake struct {
		says string
		o    console.Options
	}
	const base = "https://api.example.com"
	sample := func(s console.Sample) console.Options {
		return console.Options{BaseURL: base, Samples: []console.Sample{s}}
	}
	rows := []mistake{
		{`BaseURL: ""`, console.Options{Samples: []console.Sample{{Scope: scope.TasksRead, Method: "POST", Path: "/tasks"}}}},
		{"Samples: {Scope:moon:walk Method:GET Path:/ Body:}: the issuer's registry lacks",
			sample(console.Sample{Scope: "moon:walk", Method: "GET", Path: "/"})},
		{"Samples: {Scope:tasks:read Method:HEAD Path:/ Body:}: the Method",
			sample(console.Sample{Scope: scope.TasksRead, Method: "HEAD", Path: "/"})},
		{"Samples: {Scope:tasks:read Method:PUT Path:/ Body:{}: the Body",
			sample(console.Sample{Scope: scope.TasksRead, Method: "PUT", Path: "/", Body: "{"})},
	}
	for _, bad := range []string{"tasks", "/\"", "/%zz"} {
		rows = append(rows, mistake{"Samples: {Scope:tasks:read Method:GET Path:" + bad + " Body:}: the Path",
			sample(console.Sample{Scope: scope.TasksRead, Method: "GET", Path: bad})})
	}
	for _, bad := range []string{"api.example", "javascript:1", "https://", "ftp://a", "https://%zz", "https://a?b=c",
		"https://a/'\"b"} {
		rows = append(rows, mistake{fmt.Sprintf("BaseURL: %q is", bad), console.Options{BaseURL: bad}})
	}
	for _, bad := range []string{"/", "settings", "/settings/", "//evil.example", "/a/../b", "/a b",
		"https://a.example/keys"} {
		rows = append(rows, mistake{fmt.Sprintf("Path: %q", bad), console.Options{Path: bad}})
	}
	for _, bad := range []string{"", "*", "https://*.example.com", "https://a.example; script-src *", "https://a.example/",
		"javascript:1", "a.example", "https://a.example https://b.example", "https://a,b", "'none'", "https://",
		"ftp://a.example", "https://%zz"} {
		rows = append(rows, mistake{"FrameAncestors: " + bad, console.Options{FrameAncestors: []string{bad}}})
	}
	for _, bad := range []console.Preset{{Name: "Unknown", Scopes: []scope.Name{scope.TasksRead, "chat:raed"}},
		{Name: "Empty"}, {Scopes: []scope.Name{scope.TasksRead}}} {
		rows = append(rows, mistake{`Presets: "` + bad.Name, console.Options{Presets: []console.Preset{bad}}})
	}
	for _, bad := range [][]console.Attribute{{{}}, {{Name: "a b"}}, {{Name: "a"}, {Name: "a"}},
		{{Name: "a", Values: []string{"x", ""}}}, {{Name: "a", Values: []string{strings.Repeat("x", 201)}}}} {
		rows = append(rows, mistake{"Attributes: ", console.Options{Attributes: bad}})
	}
	for field, themes := range map[string][]console.Theme{
		"Logo": {{Logo: "logo.svg"}, {Logo: "//evil.example/x.svg"}, {Logo: "http://a.example/x.svg"}, {Logo: "javascript:1"},
			{Logo: "/a b.svg"}, {Logo: "https://u:p@a.example/x"}, {Logo: "data:text/html,<script>"},
			{Logo: "https://a;b/x"}, {Logo: "https://a,b/x"}, {Logo: "https://*.example/x"},
			{Logo: "https://a.example; script-src *"}},
		"Scheme": {{Scheme: "sepia"}},
		"Font": {{Font: "Inter; } body { display: none"}, {Font: `"Inter`}, {Font: "Inter,"}, {Font: "url(x)"},
			{Font: "a\\b"}, {Font: "Inter\n"}, {Font: "a}"}},
		"Radius": {{Radius: "8"}, {Radius: "0"}, {Radius: "25px"}, {Radius: "-1px"}, {Radius: "1em"},
			{Radius: "8px; color: red"}},
		"Light.Accent": {{Light: console.Palette{Accent: "red"}}, {Light: console.Palette{Accent: "#12345"}},
			{Light: console.Palette{Accent: "#12345g"}}, {Light: console.Palette{Accent: "1234567"}}},
		"Dark.Accent":   {{Dark: console.Palette{Accent: "#12;}}"}}},
		"Light.Ground":  {{Light: console.Palette{Ground: "white"}}},
		"Light.Surface": {{Light: console.Palette{Surface: "#fff"}}},
		"Light.Ink": {{Light: console.Palette{Ink: "#808080"}}, {Light: console.Palette{Surface: "#222222"}},
			{Light: console.Palette{Ground: "#888888"}}},
		"Dark.Ink": {{Dark: console.Palette{Ink: "#555555"}}, {Dark: console.Palette{Surface: "#ffffff"}}},
	} {
		for _, bad := range themes {
			rows = append(rows, mistake{"Theme: " + field + " ", console.Options{Theme: bad}})
		}
	}
	for _, row := range rows {
		text := panicOf(func() { newBench(t, func(o *console.Options) { *o = row.o }) })
		if !strings.HasPrefix(text, "console: "+row.says) || strings.Contains(text, "[0-9") { // in words, not as a pattern
			t.Errorf("%+v: got the panic %q, want one of %s", row.o, text, row.says)
		}
	}
	newBench(t, func(o *console.Options) { // attributes that can be stored
		o.Attributes = []console.Attribute{{Name: "a"}, {Name: "b", Values: []string{"x", strings.Repeat("x", 200)}}}
	})
}
