package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An event is an act of the audit as a page tells it.
type event struct {
	At                time.Time
	Key               string // its id; empty: no key's
	What, Who, Reason string
	Details           []string
}

// story returns the last 100 things that were done to a key, the newest first.
func (x *exchange) story(k *keystore.Key) (events []event, err error) {
	entries, err := x.issuer.Audit(x.r.Context(), k.Organization, issuing.AuditQuery{Key: k.ID})
	return x.events(entries), err
}

// audit is the page of what was done to all keys of the organization, or to the
// one that key names.
func (x *exchange) audit() error {
	q := x.r.URL.Query()
	entries, err := x.issuer.Audit(x.r.Context(), x.actor.Organization,
		issuing.AuditQuery{Key: q.Get("key"), After: q.Get("after")})
	if err != nil {
		return err
	}
	older := ""
	if len(entries) == auditPage {
		older = "?" + url.Values{"key": {q.Get("key")}, "after": {entries[auditPage-1].ID}}.Encode()
	}
	return x.render(http.StatusOK, "audit.html", "Audit", struct {
		Key, Older string
		Events     []event
	}{q.Get("key"), older, x.events(entries)})
}

const auditPage = 100 // entries that an issuing.Store returns at most

func (x *exchange) events(entries []issuing.AuditEntry) (events []event) {
	for _, e := range entries {
		told := event{At: e.At, Key: e.Key, What: cmp.Or(actNames[e.Act], e.Act), Who: x.personName(e.Actor),
			Reason: e.Reason}
		for _, c := range reasons {
			if c.Value == e.Reason {
				told.Reason = c.Name
			}
		}
		switch {
		case e.Act == "revoke" && e.Reason == issuing.ReasonRotated:
			told.What, told.Reason = "Rotated", ""
		case e.Act == "rename", e.Act == "edit":
			for _, c := range e.Changes {
				told.Details = append(told.Details, detail(c))
			}
		}
		events = append(events, told)
	}
	return events
}

var actNames = map[string]string{
	"issue": "Created", "delegate": "Created by its parent", "rotate": "Created in a rotation", "import": "Imported",
	"revoke": "Revoked", "suspend": "Suspended", "resume": "Resumed", "rename": "Renamed", "edit": "Changed",
}

// detail says what an edit changed. The values of attributes are not said:
// there can be some that the pages do not know.
func detail(c issuing.Change) string {
	switch c.Field {
	case "name":
		return "Name: “" + c.Before + "” → “" + c.After + "”"
	case "scopes":
		kept := strings.Fields(c.After)
		gone := slices.DeleteFunc(strings.Fields(c.Before), func(n string) bool { return slices.Contains(kept, n) })
		return "Scopes taken away: " + strings.Join(gone, ", ")
	case "expires_at":
		return "Expires: " + endText(c.Before) + " → " + endText(c.After)
	case "networks":
		return "Networks: " + cmp.Or(c.Before, "anywhere") + " → " + cmp.Or(c.After, "anywhere")
	case "suspended":
		return map[string]string{"true": "Suspended", "": "Resumed"}[c.After]
	}
	return capital(c.Field) + " changed"
}

// endText returns a time of the audit as the pages show the end of a key.
func endText(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return until(t)
	}
	return "never"
}
