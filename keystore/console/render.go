package console

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed templates
	files embed.FS
	//go:embed console.js
	script string
)

var pages = func() map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, name := range []string{"list.html", "key.html", "create.html", "secret.html", "used.html", "replay.html",
		"rotate.html", "edit.html", "revoke.html", "suspend.html", "audit.html", "error.html"} {
		all[name] = template.Must(template.New("layout.html").Funcs(sampleFuncs).Funcs(template.FuncMap{
			"segment": segment,
			"capital": capital,
			"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
			"date":    func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") },
			"day":     func(t time.Time) string { return t.UTC().Format("2 Jan 2006") },
			"until":   until,
			"last":    func(t time.Time) string { return lastDay(t).Format("2 Jan 2006") },
			"within":  func(t time.Time) string { return "in " + span(time.Until(t)) },
			"number":  number,
			"ago":     func(t time.Time) string { return ago(time.Since(t), t) },
		}).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/samples.html", "templates/"+name))
	}
	return all
}()

// segment returns an id as a part of an address. An imported one may have a
// colon, for which html/template would take what stands before it for a scheme.
func segment(id string) string { return strings.ReplaceAll(url.PathEscape(id), ":", "%3A") }

// A page is what the layout shows; Body belongs to the template.
type page struct {
	Title string
	Root  string
	Look  look
	Actor Actor
	Body  any
}

// render answers with a page, and returns nil.
func (x *exchange) render(status int, name, title string, body any) error {
	// Rendered whole first, so that no half page leaves with a status of
	// success.
	var b bytes.Buffer
	err := pages[name].Execute(&b, page{Title: title, Root: x.root, Look: x.look, Actor: x.actor, Body: body})
	if err != nil {
		x.options.Logger.ErrorContext(x.r.Context(), "console: a page could not be rendered", "page", name, "error", err)
		http.Error(x.w, "The page could not be rendered.", http.StatusInternalServerError)
		return nil
	}
	x.write(status, "text/html; charset=utf-8", b.Bytes())
	return nil
}

func (x *exchange) write(status int, kind string, body []byte) {
	x.w.Header().Set("Content-Type", kind)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // nobody is left to tell
}

// asset serves the style sheet and the script, to anybody: they are the same
// for all, and the pages that refuse use them too.
func (x *exchange) asset(at string) bool {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return false
	}
	switch at {
	case "console.css":
		x.write(http.StatusOK, "text/css; charset=utf-8", []byte(x.look.css))
	case "console.js":
		x.write(http.StatusOK, "text/javascript; charset=utf-8", []byte(script))
	default:
		return false
	}
	return true
}

// seeOther redirects to an address below the console's root, and returns nil.
func (x *exchange) seeOther(address string) error {
	x.w.Header().Set("Location", x.root+address)
	x.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// until shows when a key expires. Midnight is shown as the end of the day
// before, because that is the day which the administrator chose.
func until(t time.Time) string {
	if last := lastDay(t); !t.UTC().Truncate(day).Equal(last) {
		return last.Format("2 Jan 2006") + ", 24:00 UTC"
	}
	return t.UTC().Format("2 Jan 2006, 15:04 UTC")
}

// lastDay returns the last day on which a key works that ends at t.
func lastDay(t time.Time) time.Time { return t.UTC().Add(-1).Truncate(day) }

// number shows a count with its thousands apart.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// span says how long d is, in the largest unit of which it has one.
func span(d time.Duration) string {
	n, unit := d/time.Minute, "minute"
	if d >= day {
		n, unit = d/day, "day"
	} else if d >= time.Hour {
		n, unit = d/time.Hour, "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return strconv.Itoa(int(n)) + " " + unit
}

// ago says how long ago something was, and gives the date when that says more.
func ago(d time.Duration, t time.Time) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < 30*day:
		return span(d) + " ago"
	}
	return t.UTC().Format("2 Jan 2006")
}

// personName returns how to show whoever made a key.
func (x *exchange) personName(id string) string {
	name, known := x.names[id]
	if !known && x.options.PersonName != nil {
		name = x.options.PersonName(x.r.Context(), x.actor.Organization, id)
	}
	x.names[id] = cmp.Or(name, id)
	return x.names[id]
}

// capital returns a word as it begins a text.
func capital(word any) string {
	text := fmt.Sprint(word)
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}
