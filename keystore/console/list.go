package console

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const pageSize = 25 // keys

// list shows a page of the organization's keys.
func (x *exchange) list() error {
	p, err := readPage(x.r.URL)
	if err != nil {
		return err
	}
	// The key beyond the page tells whether there is another page.
	p.Limit = pageSize + 1
	keys, err := x.issuer.Keys(x.r.Context(), x.actor.Organization, p)
	if err != nil {
		return err
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
		Later:     p.After != nil,
		First:     "?" + query(p, "").Encode(),
		Creatable: len(x.creatable()) > 0,
	}
	if len(keys) > pageSize {
		keys = keys[:pageSize]
		body.NextQuery = "?" + query(p, cursorText(keys[pageSize-1])).Encode()
	}
	for _, k := range keys {
		body.Keys = append(body.Keys, x.view(k))
	}
	x.render(http.StatusOK, "list.html", "API keys", body)
	return nil
}

func query(p keystore.Page, after string) url.Values {
	q := make(url.Values)
	for name, value := range map[string]string{"environment": string(p.Environment), "status": string(p.Status),
		"after": after} {
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
	p := keystore.Page{Environment: keystore.Environment(q.Get("environment")), Status: keystore.Status(q.Get("status"))}
	if p.Environment != "" && !p.Environment.Known() {
		return p, badRequest("The filter environment is production or sandbox.")
	}
	switch p.Status {
	case "", keystore.Active, keystore.Suspended, keystore.Expired, keystore.Revoked:
	default:
		return p, badRequest("The filter status is active, suspended, expired or revoked.")
	}
	if q.Get("after") != "" {
		if p.After, err = parseCursor(q.Get("after")); err != nil {
			return p, badRequest("The parameter after is not one that a page ended with.")
		}
	}
	return p, nil
}

// cursorText returns a place in the list as it stands in a query.
func cursorText(k *keystore.Key) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(k.CreatedAt.UnixNano(), 10) + "." + k.ID))
}

func parseCursor(text string) (*keystore.Key, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	nanos, id, _ := strings.Cut(string(b), ".")
	n, err := strconv.ParseInt(nanos, 10, 64)
	return &keystore.Key{CreatedAt: time.Unix(0, n).UTC(), ID: id}, err
}

func badRequest(detail string) error {
	return &failure{status: http.StatusBadRequest, title: "Not understood", detail: detail}
}
