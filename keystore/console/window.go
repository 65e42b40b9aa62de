package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const (
	pageSize = 25   // keys on a page
	maxRead  = 1000 // keys that a request reads of a selection, to search, sort and count them
)

// A window is the keys of a selection that a request has read, the newest
// first.
type window struct {
	keys  []*keystore.Key
	last  *keystore.Key // the last one that was read; nil: there are no others
	begin int           // of the page, in keys
	older bool          // the window does not begin with the newest key
}

// window returns the one with the page after a key.
func (x *exchange) window(s selection, after *keystore.Key) (w window, err error) {
	w.keys, w.last, err = x.find(s, nil, maxRead)
	if err != nil || after == nil {
		return w, err
	}
	w.begin, _ = slices.BinarySearchFunc(w.keys, after, func(k, after *keystore.Key) int {
		return cmp.Or(newestFirst(k, after), -1) // the page begins behind it
	})
	if w.begin == len(w.keys) && w.last != nil {
		w.begin, w.older = 0, true
		w.keys, w.last, err = x.find(s, after, maxRead)
	}
	return w, err
}

func (w window) page() []*keystore.Key { return w.keys[w.begin:min(w.begin+pageSize, len(w.keys))] }

// A paging says which keys a page has, and has the queries of others; an empty
// one is none.
type paging struct {
	First, Last, Total int
	More, Older        bool // there are keys beyond Total; the first is not the newest of the selection
	Previous, Next     string
	Further            string // searches keys that are older than those that were read
}

func (w window) paging(s selection) paging {
	p := paging{First: w.begin + 1, Last: w.begin + len(w.page()), Total: len(w.keys), More: w.last != nil, Older: w.older}
	if w.begin > pageSize {
		p.Previous = s.query(w.keys[w.begin-pageSize-1])
	} else if w.begin > 0 || w.older {
		p.Previous = s.query(nil)
	}
	switch {
	case p.Last < p.Total:
		p.Next = s.query(w.keys[p.Last-1])
	case w.last != nil && s.Narrows():
		p.Further = s.query(w.last)
	case w.last != nil:
		p.Next = s.query(w.last)
	}
	return p
}

// find returns the keys of a selection among the first limit after a key, the
// newest first; last is the last of these if there are others.
func (x *exchange) find(s selection, after *keystore.Key, limit int) (keys []*keystore.Key, last *keystore.Key,
	err error) {
	show, p := s.Show(), issuing.Page{}
	if show.page != nil {
		p = show.page(time.Now())
	}
	p.Environment = s.Environment
	for _, p.Status = range show.statuses {
		p.After = after
		some, err := x.read(p, limit)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, some...)
	}
	slices.SortFunc(keys, newestFirst)
	if len(keys) > limit {
		keys, last = keys[:limit], keys[limit-1]
	}
	if s.Search != "" {
		keys = slices.DeleteFunc(keys, func(k *keystore.Key) bool { return !s.matches(k, x.issuer.Service().Masked(k)) })
	}
	if show.among != nil {
		keys, last, err = show.among(x, keys, last)
	}
	return keys, last, err
}

// read returns the keys that a page selects, of which there can be more than
// one call returns: limit of them, and one more if there is one.
func (x *exchange) read(p issuing.Page, limit int) (all []*keystore.Key, err error) {
	for len(all) <= limit {
		p.Limit = limit + 1 - len(all)
		keys, err := x.issuer.Keys(x.r.Context(), x.actor.Organization, p)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
		if len(keys) < p.Size() {
			break
		}
		p.After = keys[len(keys)-1]
	}
	return all, nil
}

func newestFirst(a, b *keystore.Key) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}
