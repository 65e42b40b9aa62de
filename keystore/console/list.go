package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const (
	maxEnded = 10 // keys behind the fold
	maxCount = 99 // the strip says "99+" for more
)

// list shows a page of the organization's keys, the live ones first.
func (x *exchange) list() error {
	s, at, err := readSelection(x.r.URL)
	if err != nil {
		return err
	}
	if _, err := x.issuer.Service().Parse(s.Search); err == nil {
		return x.toToken(s)
	}
	body := struct {
		selection
		paging
		Shows, Care []show
		Makers      []option // whose keys alone can be asked for; each row has a link for its own
		Sorts       []option
		Of          *view // the parent, if these are its children
		Keys, Ended []view
		AllEnded    string // the query of all ended keys; empty: these are all
		Empty       bool   // there is not one key
		Creatable   bool
		Since       time.Time // of keys with unused scopes: the first day without them
	}{selection: s, Shows: shows(), Creatable: len(x.creatable()) > 0, Since: time.Now().Add(-idleAfter), Sorts: sorts}
	title, parent := "API keys", (*keystore.Key)(nil)
	if s.Parent != "" {
		if parent, err = x.issuer.Key(x.r.Context(), x.actor.Organization, s.Parent); err != nil {
			return err
		}
		of := x.view(parent)
		body.Of, title = &of, "Children of “"+of.Name+"”"
	}
	keys, paging, err := x.window(s, at)
	if err != nil {
		return err
	}
	body.paging, body.Keys = paging, x.views(keys, parent)
	if s.Status == "" && at.trail == nil {
		ended := s
		ended.Status = "ended"
		keys, total, err := x.find(ended, place{}, maxEnded)
		if err != nil {
			return err
		}
		if body.Ended = x.views(keys, parent); total > maxEnded {
			body.AllEnded = ended.query(place{})
		}
	}
	none := len(body.Keys)+len(body.Ended) == 0
	if none && s.Search != "" {
		switch k, err := x.issuer.Key(x.r.Context(), x.actor.Organization, s.Search); {
		case err == nil && k.Parent != "": // the list has no child
			return x.toKey(k, "")
		case err != nil && !errors.Is(err, keystore.ErrNotFound):
			return err
		}
	}
	body.Makers = []option{{"", "By anybody"}, {x.actor.ID, "By you"}}
	if s.By != "" && s.By != x.actor.ID { // named by a key that is listed alone: an address may have any id
		body.Makers = append(body.Makers, option{s.By, "By " + cmp.Or(x.names[s.By], s.By)})
	}
	body.Empty = none && !s.Narrows() && at.trail == nil
	if s.Search == "" && parent == nil { // counting while somebody types would keep the store busy
		if body.Care, err = x.care(); err != nil {
			return err
		}
	}
	return x.render(http.StatusOK, "list.html", title, body)
}

// care returns those of the choices that need some, with the number of their
// keys. Those with unused scopes are not counted: that takes the use of each.
func (x *exchange) care() (counted []show, err error) {
	for _, c := range shows() {
		if !c.Care {
			continue
		}
		if c.Value != unusedScopes {
			_, total, err := x.find(selection{Status: c.Value}, place{}, 1)
			if err != nil {
				return nil, err
			}
			if c.Count = strconv.Itoa(total); total > maxCount {
				c.Count = strconv.Itoa(maxCount) + "+"
			}
		}
		counted = append(counted, c)
	}
	return counted, nil
}

// toToken leads from a token that is searched to its key, or to a search for
// its end: an address is no place for a secret.
func (x *exchange) toToken(s selection) error {
	k, err := x.issuer.KeyOf(x.r.Context(), s.Search)
	if err == nil && k.Organization == x.actor.Organization {
		return x.toKey(k, "")
	}
	if err != nil && !errors.Is(err, keystore.ErrNotFound) {
		return err
	}
	s.Search = s.Search[len(s.Search)-4:]
	return x.seeOther(s.query(place{}))
}

// views returns keys of a list, which has no ancestors, as a page shows them.
func (x *exchange) views(keys []*keystore.Key, parent *keystore.Key) (views []view) {
	for _, k := range keys {
		if parent != nil {
			k.Ancestors = append([]*keystore.Key{parent}, parent.Ancestors...)
		}
		views = append(views, x.view(k))
	}
	return views
}
