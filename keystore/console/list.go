package console

import (
	"net/http"

	"github.com/sallyport-go/sallyport/keystore"
)

const maxEnded = 10 // keys behind the fold

// list shows a page of the organization's keys, the live ones first.
func (x *exchange) list() error {
	shows := x.shows()
	s, after, err := readSelection(x.r.URL, shows)
	if err != nil {
		return err
	}
	if _, err := x.issuer.Service().Parse(s.Search); err == nil {
		s.Search = s.Search[len(s.Search)-4:] // an address is no place for a secret
		x.w.Header().Set("Location", x.root+s.query(nil))
		x.w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	body := struct {
		selection
		paging
		Shows, Care []show
		Keys, Ended []view
		AllEnded    string // the query of all ended keys; empty: these are all
		Empty       bool   // there is not one key
		Creatable   bool
	}{selection: s, Shows: shows, Creatable: len(x.creatable()) > 0}
	w, err := x.window(s, after)
	if err != nil {
		return err
	}
	body.paging, body.Keys = w.paging(s), x.views(w.page())
	if s.Status == "" && after == nil {
		limit := maxEnded
		if s.Search != "" {
			limit = maxRead
		}
		ended := selection{s.Search, s.Environment, "ended"}
		keys, last, err := x.find(ended, nil, limit)
		if err != nil {
			return err
		}
		body.Ended = x.views(keys[:min(maxEnded, len(keys))])
		if last != nil || len(keys) > maxEnded {
			body.AllEnded = ended.query(nil)
		}
	}
	body.Empty = len(body.Keys)+len(body.Ended) == 0 && !s.Narrows() && after == nil
	if body.Care, err = x.care(shows); err != nil {
		return err
	}
	x.render(http.StatusOK, "list.html", "API keys", body)
	return nil
}

func (x *exchange) views(keys []*keystore.Key) (views []view) {
	for _, k := range keys {
		views = append(views, x.view(k))
	}
	return views
}
