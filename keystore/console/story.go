package console

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An event is an entry of the audit in the words of the pages, in place of its
// Act, Reason and Changes.
type event struct {
	issuing.AuditEntry
	Who     string   `json:"-"` // the name of the Actor
	Details []string `json:"details,omitempty"`
}

// story returns the last 100 things that were done to a key, the newest first.
func (x *exchange) story(k *keystore.Key) ([]event, error) {
	entries, err := x.issuer.Audit(x.r.Context(), k.Organization, issuing.AuditQuery{Key: k.ID})
	events := x.events(entries)
	for i, e := range entries {
		if e.Act != "rename" && e.Act != "edit" { // the page has the rest
			events[i].Details = nil
		}
	}
	return events, err
}

const maxFilters = 2000 // bytes of the address, which the page repeats

// audit is the page of what was done to keys of the organization, or the file.
func (x *exchange) audit() error {
	in, err := url.ParseQuery(x.r.URL.RawQuery)
	date := func(name string, later time.Duration) (t time.Time) {
		if text := in.Get(name); text != "" && err == nil {
			t, err = time.Parse(time.DateOnly, text)
			t = t.Add(later)
		}
		return t
	}
	q := issuing.AuditQuery{After: in.Get("after"), Key: strings.TrimSpace(in.Get("key")), Act: in.Get("act"),
		Actor: strings.TrimSpace(in.Get("person")), Since: date("from", 0), Until: date("to", day)}
	if err != nil || len(x.r.URL.RawQuery) > maxFilters || q.Act != "" && named(acts, q.Act) == q.Act {
		return noSuchPage
	}
	if _, err := x.issuer.Service().Parse(q.Key); err == nil {
		return x.toToken(selection{Search: q.Key})
	}
	in.Del("after")
	if in.Has("file") {
		return x.export(q, in.Get("file"))
	}
	entries, err := x.issuer.Audit(x.r.Context(), x.actor.Organization, q)
	if err != nil {
		return err
	}
	body := struct {
		issuing.AuditQuery
		From, To, Older, CSV, JSON string
		Acts                       []option
		Events                     []event
	}{AuditQuery: q, From: in.Get("from"), To: in.Get("to"), Acts: acts, Events: x.events(entries)}
	address := func(name, value string) string { return "?" + in.Encode() + "&" + url.Values{name: {value}}.Encode() }
	body.CSV, body.JSON = address("file", "csv"), address("file", "json")
	if _, _, limit := q.Bounds(); len(entries) == limit {
		body.Older = address("after", entries[limit-1].ID)
	}
	return x.render(http.StatusOK, "audit.html", "Audit", body)
}

// mostExported is how many entries a file has at most, 1000 a statement.
const mostExported = 10_000

// formula finds what a spreadsheet takes for a formula, also one that separates
// cells by another character than the comma.
var formula = regexp.MustCompile(`(^|[;|,\t\r\n])(\s*[-=+@＝＋－＠])`)

// export answers with all entries that q selects, or refuses. It asks for no
// names of people, of whom there may be thousands.
func (x *exchange) export(q issuing.AuditQuery, kind string) error {
	media := map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}[kind]
	if media == "" {
		return noSuchPage
	}
	all, rows := []event{}, [][]string{{"at", "act", "key", "name", "hint", "actor", "reason", "details", "id"}}
	q.After, q.Limit = "", 1000
	for more := true; more; {
		entries, err := x.issuer.Audit(x.r.Context(), x.actor.Organization, q)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			e := eventOf(entry)
			row := []string{e.At.UTC().Format(time.RFC3339Nano), e.Act, e.Key, e.KeyName, e.KeyHint, e.Actor, e.Reason,
				strings.Join(e.Details, "; "), e.ID}
			for i, cell := range row {
				row[i] = formula.ReplaceAllString(cell, "$1'$2")
			}
			all, rows, q.After = append(all, e), append(rows, row), e.ID
		}
		if len(all) > mostExported {
			return &failure{status: http.StatusUnprocessableEntity, title: "Too many entries",
				detail: "A file has at most 10,000 entries, and more match. Choose fewer days."}
		}
		more = len(entries) == q.Limit
	}
	var b bytes.Buffer
	if kind == "json" {
		_ = json.NewEncoder(&b).Encode(all)
	} else {
		w := csv.NewWriter(&b)
		w.UseCRLF = true
		_ = w.WriteAll(rows)
	}
	x.w.Header().Set("Content-Disposition", `attachment; filename="audit.`+kind+`"`)
	x.write(http.StatusOK, media, b.Bytes())
	return nil
}

func (x *exchange) events(entries []issuing.AuditEntry) (events []event) {
	for _, e := range entries {
		told := eventOf(e)
		if e.Act != "delegate" { // which the act says
			told.Who = x.personName(e.Actor)
		}
		events = append(events, told)
	}
	return events
}

func eventOf(e issuing.AuditEntry) (told event) {
	for _, c := range e.Changes {
		if c.Field != "suspended" || e.Act == "edit" { // or the act says it
			told.Details = append(told.Details, detail(e.Act, c))
		}
	}
	if e.Act == "revoke" && e.Reason == issuing.ReasonRotated {
		e.Act, e.Reason = "Rotated", ""
	}
	e.Act, e.Reason, e.Changes = named(acts, e.Act), named(reasons, e.Reason), nil
	told.AuditEntry = e
	return told
}

var acts = []option{{"issue", "Created"}, {"delegate", "Created by its parent"}, {"rotate", "Created in a rotation"},
	{"import", "Imported"}, {"rename", "Renamed"}, {"edit", "Changed"}, {"suspend", "Suspended"}, {"resume", "Resumed"},
	{"revoke", "Revoked"}, {"erase", "All erased"}}

// named returns the name of the option with a value, or the value.
func named(all []option, value string) string {
	for _, o := range all {
		if o.Value == value {
			return o.Name
		}
	}
	return value
}

// detail says what an act has changed. The values of attributes are not said:
// there can be some that the pages do not know.
func detail(act string, c issuing.Change) string {
	edit := act == "edit" || act == "rename" || act == "erase"
	switch c.Field {
	case "attributes":
		return "Attributes changed"
	case "suspended":
		return map[string]string{"true": "Suspended", "": "Resumed"}[c.After]
	case "scopes":
		if edit {
			kept := strings.Fields(c.After)
			gone := slices.DeleteFunc(strings.Fields(c.Before), func(n string) bool { return slices.Contains(kept, n) })
			return "Scopes taken away: " + strings.Join(gone, ", ")
		}
	case "environment":
		c.After = capital(c.After)
	case "name":
		c.Before, c.After = "“"+c.Before+"”", "“"+c.After+"”"
	case "expires_at", "revoked_at":
		c.Before, c.After = endText(c.Before), endText(c.After)
	case "networks":
		c.Before, c.After = cmp.Or(c.Before, "anywhere"), cmp.Or(c.After, "anywhere")
	}
	if edit {
		c.After = c.Before + " → " + c.After
	}
	return named(fields, capital(c.Field)) + ": " + c.After
}

var fields = []option{{"Expires_at", "Expires"}, {"Revoked_at", "Stops working"}, {"Legacy", "Legacy form"},
	{"Parent", "Child of"}, {"Rotated_from", "Replaces"}}

// endText returns a time of the audit as the pages show the end of a key.
func endText(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return until(t)
	}
	return "never"
}
