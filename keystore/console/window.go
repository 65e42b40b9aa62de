package console

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const (
	pageSize = 25
	maxTrail = 40 // pages that one can go back
)

// A paging says which keys a page has, and has the queries of others; an empty
// one is none.
type paging struct {
	First, Last, Total     int
	Previous, Next, Newest string
}

// A place is where a page begins: behind the key that trail ends with, and
// begin keys. The rest of the trail is where the pages before it began.
type place struct {
	trail []string
	begin int
}

// cursor is how a trail names a key. An imported one may be from a year in which
// no nanosecond has a number; each time of a key is a whole microsecond.
func cursor(k *keystore.Key) string {
	return strconv.FormatInt(k.CreatedAt.UnixMicro(), 36) + "." + k.ID
}

// after returns the key that the page comes after, or nil.
func (p place) after() (*keystore.Key, error) {
	if len(p.trail) == 0 {
		return nil, nil
	}
	micros, id, _ := strings.Cut(p.trail[len(p.trail)-1], ".")
	n, err := strconv.ParseInt(micros, 36, 64)
	at := time.UnixMicro(n).UTC()
	if err != nil || at.Year() < 1 || at.Year() > 9999 { // what each database takes
		return nil, noSuchPage
	}
	return &keystore.Key{CreatedAt: at, ID: id}, nil
}

// window returns the page of a selection at a place.
func (x *exchange) window(s selection, at place) (keys []*keystore.Key, p paging, err error) {
	keys, total, err := x.find(s, at, pageSize)
	if err != nil {
		return nil, paging{}, err
	}
	p = paging{First: at.begin + 1, Last: at.begin + len(keys), Total: at.begin + total}
	if last := len(at.trail) - 1; last >= 0 {
		p.Newest = s.query(place{})
		if last > 0 || at.begin == pageSize {
			p.Previous = s.query(place{at.trail[:last], at.begin - pageSize})
		}
	}
	if total > len(keys) {
		trail := append(at.trail, cursor(keys[len(keys)-1]))
		p.Next = s.query(place{trail[max(0, len(trail)-maxTrail):], p.Last})
	}
	return keys, p, nil
}

// find returns the keys of a selection at a place, the newest first and at most
// limit, and the number of all from there on.
func (x *exchange) find(s selection, at place, limit int) (keys []*keystore.Key, total int, err error) {
	q := s.Show().page(time.Now())
	q.Environment, q.Search, q.Parent = s.Environment, s.Search, s.Parent
	q.Limit, q.Total, q.Children = limit, true, true
	if _, hint, masked := strings.Cut(s.Search, "…"); masked {
		q.Search = hint
	}
	if q.After, err = at.after(); err != nil {
		return nil, 0, err
	}
	page, err := x.issuer.Keys(x.r.Context(), x.actor.Organization, q)
	maps.Copy(x.below, page.Children)
	return page.Keys, page.Total, err
}
