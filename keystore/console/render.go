package console

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

//go:embed templates
var files embed.FS

var pages = func() map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, name := range []string{"list.html", "key.html", "create.html", "secret.html", "replay.html", "rotate.html",
		"edit.html", "revoke.html", "error.html"} {
		all[name] = template.Must(template.New("layout.html").Funcs(template.FuncMap{
			"segment": url.PathEscape,
			"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
			"date":    func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") },
			"day":     func(t time.Time) string { return t.UTC().Format("2 Jan 2006") },
			"until":   until,
			"ago":     func(t time.Time) string { return ago(time.Since(t), t) },
		}).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name))
	}
	return all
}()

// A page is what the layout shows; Body belongs to the template.
type page struct {
	Title string
	Root  string
	Look  look
	Actor Actor
	Body  any
}

func (x *exchange) render(status int, name, title string, body any) {
	// Rendered whole first, so that no half page leaves with a status of
	// success.
	var b bytes.Buffer
	err := pages[name].Execute(&b, page{Title: title, Root: x.root, Look: x.look, Actor: x.actor, Body: body})
	if err != nil {
		x.options.Logger.ErrorContext(x.r.Context(), "console: a page could not be rendered", "page", name, "error", err)
		http.Error(x.w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	x.write(status, "text/html; charset=utf-8", b.Bytes())
}

func (x *exchange) write(status int, kind string, body []byte) {
	x.w.Header().Set("Content-Type", kind)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // nobody is left to tell
}

// until shows when a key expires. Midnight is shown as the end of the day
// before, because that is the day which the administrator chose.
func until(t time.Time) string {
	t = t.UTC()
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return t.AddDate(0, 0, -1).Format("2 Jan 2006") + ", 24:00 UTC"
	}
	return t.Format("2 Jan 2006, 15:04 UTC")
}

// ago says how long ago something was, and gives the date when that says more.
func ago(d time.Duration, t time.Time) string {
	count := func(n int, unit string) string {
		if n == 1 {
			return "1 " + unit + " ago"
		}
		return strconv.Itoa(n) + " " + unit + "s ago"
	}
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return count(int(d/time.Minute), "minute")
	case d < 24*time.Hour:
		return count(int(d/time.Hour), "hour")
	case d < 30*24*time.Hour:
		return count(int(d/(24*time.Hour)), "day")
	}
	return t.UTC().Format("2 Jan 2006")
}

// personName returns how to show whoever made a key.
func (x *exchange) personName(id string) string {
	if id == x.actor.ID {
		return x.actor.Name
	}
	name, known := x.names[id]
	if !known {
		if x.options.PersonName != nil {
			name = x.options.PersonName(x.r.Context(), x.actor.Organization, id)
		}
		if name == "" {
			name = id
		}
		x.names[id] = name
	}
	return name
}

func environmentName(e keystore.Environment) string {
	switch e {
	case keystore.Production:
		return "Production"
	case keystore.Sandbox:
		return "Sandbox"
	}
	return string(e)
}
