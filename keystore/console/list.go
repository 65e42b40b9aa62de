package console

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const (
	defaultPage = 25  // keys
	maxPage     = 100 // keys; one more is asked for, which the issuer's 200 allow
)

// list shows a page of the organization's keys.
func (x *exchange) list() error {
	p, err := readPage(x.r.URL)
	if err != nil {
		return err
	}
	size := p.Limit
	p.Limit++ // the key beyond the page tells whether there is another page
	keys, err := x.issuer.Keys(x.r.Context(), x.actor.Organization, p)
	if err != nil {
		return err
	}
	next := ""
	if len(keys) > size {
		keys = keys[:size]
		next = cursorText(keys[size-1].Cursor())
	}
	if x.json {
		listed := struct {
			Keys []keyJSON `json:"keys"`
			Next string    `json:"next,omitempty"`
		}{Keys: make([]keyJSON, 0, len(keys)), Next: next}
		for _, k := range keys {
			listed.Keys = append(listed.Keys, x.keyJSON(k))
		}
		x.writeJSON(http.StatusOK, listed)
		return nil
	}
	body := struct {
		Keys             []view
		Page             keystore.Page
		Filtered, Later  bool
		First, NextQuery string
		Creatable        bool
	}{
		Page:      p,
		Filtered:  p.Environment != "" || p.Status != "",
		Later:     p.After != keystore.Cursor{},
		First:     "?" + query(p, "").Encode(),
		Creatable: len(x.creatable()) > 0,
	}
	if next != "" {
		body.NextQuery = "?" + query(p, next).Encode()
	}
	for _, k := range keys {
		body.Keys = append(body.Keys, x.view(k))
	}
	x.render(http.StatusOK, "list.html", "API keys", body)
	return nil
}

func query(p keystore.Page, after string) url.Values {
	q := make(url.Values)
	for name, value := range map[string]string{"environment": string(p.Environment), "status": string(p.Status), "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

func readPage(u *url.URL) (keystore.Page, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return keystore.Page{}, badRequest("The query could not be read.")
	}
	p := keystore.Page{Limit: defaultPage, Environment: keystore.Environment(q.Get("environment")), Status: keystore.Status(q.Get("status"))}
	if p.Environment != "" && !p.Environment.Known() {
		return p, badRequest("The filter environment is production or sandbox.")
	}
	switch p.Status {
	case "", keystore.Active, keystore.Suspended, keystore.Expired, keystore.Revoked:
	default:
		return p, badRequest("The filter status is active, suspended, expired or revoked.")
	}
	if q.Has("limit") {
		p.Limit, err = strconv.Atoi(q.Get("limit"))
		if err != nil || p.Limit < 1 || p.Limit > maxPage {
			return p, badRequest(fmt.Sprintf("The parameter limit is a number from 1 to %d.", maxPage))
		}
	}
	if q.Get("after") != "" {
		if p.After, err = parseCursor(q.Get("after")); err != nil {
			return p, badRequest("The parameter after is not one that a page ended with.")
		}
	}
	return p, nil
}

// cursorText returns a place in the list as it stands in a query.
func cursorText(c keystore.Cursor) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.CreatedAt.UnixNano(), 10) + "." + c.ID))
}

func parseCursor(text string) (keystore.Cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return keystore.Cursor{}, err
	}
	nanos, id, _ := strings.Cut(string(b), ".")
	n, err := strconv.ParseInt(nanos, 10, 64)
	return keystore.Cursor{CreatedAt: time.Unix(0, n).UTC(), ID: id}, err
}

func badRequest(detail string) error {
	return &failure{status: http.StatusBadRequest, code: "bad_request", title: "Not understood", detail: detail}
}
