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
		Shows       []show
		Live, Ended rows // Live are the keys of any selection
		Care        []careCount
		MoreEnded   bool
		Empty       bool // there is not one key
		Creatable   bool
	}{selection: s, Shows: shows, Creatable: len(x.creatable()) > 0}
	w, err := x.window(s, after)
	if err != nil {
		return err
	}
	body.paging, body.Live = w.paging(s), x.rows("Keys, the newest first", w.page())
	if s.Status == "" && after == nil {
		ended := s
		ended.Status = "ended"
		keys, last, err := x.find(ended, nil, maxEnded)
		if err == nil && s.Search != "" {
			keys, last, err = x.find(ended, nil, maxRead)
		}
		if err != nil {
			return err
		}
		body.Ended = x.rows("Keys that have ended, the newest first", keys[:min(maxEnded, len(keys))])
		body.MoreEnded = last != nil || len(keys) > maxEnded
	}
	body.Empty = len(body.Live.Keys)+len(body.Ended.Keys) == 0 && !s.Narrows() && after == nil
	if !body.Empty {
		if body.Care, err = x.care(shows); err != nil {
			return err
		}
	}
	x.render(http.StatusOK, "list.html", "API keys", body)
	return nil
}

// rows are a table of keys.
type rows struct {
	Root, Caption string
	Keys          []view
}

func (x *exchange) rows(caption string, keys []*keystore.Key) rows {
	r := rows{Root: x.root, Caption: caption}
	for _, k := range keys {
		r.Keys = append(r.Keys, x.view(k))
	}
	return r
}
