package console

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A createForm holds what was typed, so that a refusal does not lose it.
type createForm struct {
	IssueToken  string
	Name        string
	Environment keystore.Environment
	Scopes      []scope.Name
	restriction
	answer
	Expiry    string // "never", a number of days, or "date"
	ExpiresOn string // with "date": YYYY-MM-DD

	Linked bool         // filled in by a link
	Lacks  []scope.Name // asked for by the link, and not on the form
}

func (x *exchange) readCreateForm(v url.Values) createForm {
	f := createForm{
		Name:        strings.TrimSpace(v.Get("name")),
		Environment: keystore.Environment(v.Get("environment")),
		Expiry:      v.Get("expiry"),
		ExpiresOn:   strings.TrimSpace(v.Get("expires_on")),
		restriction: x.readRestriction(v),
	}
	known, unknown := x.registry.Parse(readScopes(v))
	f.Scopes = append(known.Names(), unknown[:min(len(unknown), maxUnknown)]...)
	return f
}

// readScopes returns the scopes that were picked.
func readScopes(v url.Values) (names []scope.Name) {
	for _, field := range slices.Sorted(maps.Keys(v)) {
		if field == "scopes" || strings.HasPrefix(field, accessField) {
			for _, name := range strings.Fields(strings.ReplaceAll(strings.Join(v[field], " "), ",", " ")) {
				names = append(names, scope.Name(name))
			}
		}
	}
	return names
}

const (
	maxDays    = 3650 // until a key expires, where a number is given
	maxUnknown = 10   // scopes that a page names though there are none
)

// expiresAt reads when a key is to expire: never, in a number of days, or after
// a date.
func (x *exchange) expiresAt(expiry, on string) time.Time {
	last, err := time.Parse(time.DateOnly, on)
	days, daysErr := strconv.Atoi(expiry)
	switch {
	case expiry != "date" && on != "":
		x.wrong("expires_at", "A date is filled in. Choose “On a date” as well, or clear it.")
	case expiry == "date" && err != nil:
		x.wrong("expires_at", "Fill in the last day on which the key works, such as 2030-12-31.")
	case expiry == "date":
		return last.AddDate(0, 0, 1) // the day itself is included
	case daysErr == nil && 1 <= days && days <= maxDays:
		return time.Now().Add(time.Duration(days) * day)
	case expiry != "never":
		x.wrong("expires_at", "Choose when the key expires.")
	}
	return time.Time{}
}

// A family is a group of scopes on the form. Reading and writing are picked
// together, the other scopes one by one.
type family struct {
	Name, Field string
	Access      []access // nil: all are picked one by one
	Scopes      []choice
}

const accessField = "access." // and a family's name

// An access is None, Read, Write or both.
type access struct {
	Name    string
	Scopes  string // with a space between them
	Checked bool
}

type choice struct {
	scope.Definition
	Checked bool
	Only    string    // the only environment it can be assigned in, or ""
	Single  bool      // picked by itself
	Needed  time.Time // zero: never, or it cannot be told
}

// createForm is the form as its address fills it in: the parameters are name,
// environment, scopes, expires (a date, a number of days or "never"),
// preset, and like: the id of a key whose fields all are taken. A link can fill
// in no more than a hand could.
func (x *exchange) createForm() error {
	q := x.r.URL.Query()
	f := x.readCreateForm(url.Values{"name": q["name"], "environment": q["environment"], "scopes": q["scopes"]})
	offered := x.offered()
	f.Linked = slices.ContainsFunc([]string{"name", "environment", "scopes", "expires", "preset"}, q.Has)
	f.Expiry = "never"
	expires := q.Get("expires")
	if days, err := strconv.Atoi(expires); err == nil && 1 <= days && days <= maxDays {
		expires = time.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly)
	}
	if slices.ContainsFunc(expiries, func(c option) bool { return c.Value == q.Get("expires") }) {
		f.Expiry = q.Get("expires")
	} else if _, err := time.Parse(time.DateOnly, expires); err == nil {
		f.Expiry, f.ExpiresOn = "date", expires
	}
	if q.Has("like") {
		k, err := x.issuer.Key(x.r.Context(), x.actor.Organization, q.Get("like"))
		if err == nil && k.Parent != "" { // the limits of its ancestors are not in it
			err = keystore.ErrNotFound
		}
		if err != nil {
			return err
		}
		f.Name, f.Environment, f.Scopes, f.restriction = k.Name, k.Environment, k.Scopes, restrictionOf(k)
		f.Expiry, f.ExpiresOn = lifeOf(k), ""
	}
	f.Lacks = slices.DeleteFunc(slices.Clone(f.Scopes), func(n scope.Name) bool { return slices.Contains(offered, n) })
	return x.presetForm(f, q.Get("preset"))
}

// lifeOf returns the longest of the expiries that is no longer than the life of
// k was to be.
func lifeOf(k *keystore.Key) string {
	if k.ExpiresAt.IsZero() {
		return "never"
	}
	life := "7"
	for _, c := range expiries {
		// Less a day: one that was to end on a date may live shorter.
		if days, err := strconv.Atoi(c.Value); err == nil && k.ExpiresAt.Sub(k.CreatedAt) >= time.Duration(days-1)*day {
			life = c.Value
		}
	}
	return life
}

// presetForm is the form as it was filled in, with a preset's scopes.
func (x *exchange) presetForm(f createForm, preset string) error {
	if len(x.creatable()) == 0 {
		return &failure{status: http.StatusForbidden, title: "Not yours to create",
			detail: "There is no scope that you may assign to a key."}
	}
	f.IssueToken = rand.Text()
	if i := slices.IndexFunc(x.options.Presets, func(p Preset) bool { return p.Name == preset }); i >= 0 {
		f.Scopes = x.options.Presets[i].Scopes
	}
	return x.showCreateForm(http.StatusOK, f)
}

// reject shows the form again with what is wrong.
func (x *exchange) reject(f createForm, err error) error {
	why := x.explain(err)
	f.answer = why.answer()
	return x.showCreateForm(why.status, f)
}

func (x *exchange) showCreateForm(status int, f createForm) error {
	return x.render(status, "create.html", f.title("Create an API key"), struct {
		createForm
		Environments []environmentChoice
		Families     []family
		Presets      []option
		Expiries     []option
		Restriction  restrictionForm
		From, Until  string // the days to choose from
	}{f, x.environments(f), x.families(x.choices(f)), x.presets(), expiries,
		x.restrictionForm(f.restriction, f.Problems), tomorrow(), ""})
}

func tomorrow() string { return time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly) }

type environmentChoice struct {
	Value   keystore.Environment
	Masked  string
	Checked bool
}

func (x *exchange) environments(f createForm) (choices []environmentChoice) {
	creatable := x.creatable()
	for _, e := range creatable {
		choices = append(choices, environmentChoice{e, x.issuer.Service().Masked(&keystore.Key{Environment: e}),
			f.Environment == e || len(creatable) == 1})
	}
	return choices
}

// choices are what the actor may assign, in the registry's order.
func (x *exchange) choices(f createForm) (choices []choice) {
	production, sandbox := x.assignable(keystore.Production), x.assignable(keystore.Sandbox)
	both := len(production) > 0 && len(sandbox) > 0
	for _, d := range x.registry.Definitions() {
		live, test := slices.Contains(production, d.Name), slices.Contains(sandbox, d.Name)
		if !live && !test {
			continue
		}
		c := choice{Definition: d, Checked: slices.Contains(f.Scopes, d.Name)}
		switch {
		case both && !test:
			c.Only = "production only"
		case both && !live:
			c.Only = "sandbox only"
		}
		choices = append(choices, c)
	}
	return choices
}

// families groups choices.
func (x *exchange) families(choices []choice) (families []family) {
	for _, c := range choices {
		name := c.Name.Family()
		i := slices.IndexFunc(families, func(f family) bool { return f.Name == name })
		if i < 0 {
			i, families = len(families), append(families, family{Name: name})
		}
		families[i].Scopes = append(families[i].Scopes, c)
	}
	for i := range families {
		x.joinAccess(&families[i])
	}
	return families
}

// joinAccess makes one choice of what reads and what writes in a family, unless
// one of them is for one environment only. Where writing implies reading there
// is no third way.
func (x *exchange) joinAccess(f *family) {
	var read, write choice
	for i, c := range f.Scopes {
		switch {
		case c.Only != "":
		case string(c.Name) == f.Name+":read":
			read = c
		case string(c.Name) == f.Name+":write":
			write = c
		}
		f.Scopes[i].Single = c.Name != read.Name && c.Name != write.Name
	}
	written, _ := x.registry.Parse([]scope.Name{write.Name})
	both := read.Name != "" && write.Name != "" && !written.Has(read.Name)
	writes := string(write.Name)
	if !both && read.Checked && write.Checked { // a key holds what is implied by name too
		writes = string(read.Name + " " + write.Name)
	}
	f.Field = accessField + f.Name
	offered := []bool{read.Name+write.Name != "", read.Name != "", write.Name != "", both}
	for i, way := range []access{{"None", "", !read.Checked && !write.Checked},
		{"Read", string(read.Name), read.Checked && !write.Checked},
		{"Write", writes, write.Checked && !(both && read.Checked)},
		{"Both", string(read.Name + " " + write.Name), read.Checked && write.Checked}} {
		if offered[i] {
			f.Access = append(f.Access, way)
		}
	}
}

// presets returns those whose scopes are all on the form. One that picks less
// than its name says would make a key that fails later.
func (x *exchange) presets() (choices []option) {
	offered := x.offered()
	for _, p := range x.options.Presets {
		if !slices.ContainsFunc(p.Scopes, func(n scope.Name) bool { return !slices.Contains(offered, n) }) {
			choices = append(choices, option{strings.Join(texts(p.Scopes), " "), p.Name})
		}
	}
	return choices
}

var expiries = []option{{"never", "Never"}, {"7", "In 7 days"}, {"30", "In 30 days"}, {"90", "In 90 days"},
	{"365", "In a year"}, {"date", "On a date"}}

const sameEnd = "same"

// asNow is the choice to leave the end of a key as it is.
func asNow(end time.Time) []option {
	if end.IsZero() {
		return []option{{sameEnd, "As now: never"}}
	}
	return []option{{sameEnd, "As now: " + lastDay(end).Format("2 Jan 2006")}}
}
