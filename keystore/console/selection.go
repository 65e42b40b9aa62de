package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A selection says which keys a list shows, as its query does.
type selection struct {
	Search      string // in the name; the id, or the last characters
	Environment keystore.Environment
	Status      string // the Value of a show
	Parent      string // the id of the key whose children they are; empty: keys without a parent
	By          string // the id of who made them
	Sort        issuing.Order
}

var sorts = []option{{"", "Newest first"}, {string(issuing.ByLastUse), "Longest idle"},
	{string(issuing.ByExpiry), "Expires first"}}

// A show is a choice of keys by their status, or of those that need care.
type show struct {
	Value, Name string
	Care        bool
	Count       string // with Care: "0", "7", "99+", or empty: not counted
	query       issuing.Query
}

const (
	day       = 24 * time.Hour
	idleAfter = 100 * day // longer than a quarter, so that a job of each quarter keeps its scopes
	maxSearch = 800       // bytes, of the 200 characters that the field takes
	pageSize  = 25
	maxTrail  = 40 // pages that one can go back
)

// shows returns the choices as they are now.
func shows() []show {
	now := time.Now()
	return []show{
		{Name: "Live keys", query: issuing.Query{Status: keystore.Active, OrStatus: keystore.Suspended}},
		{Value: "suspended", Name: "Suspended keys", query: issuing.Query{Status: keystore.Suspended}},
		{Value: "ended", Name: "Ended keys", query: issuing.Query{Status: keystore.Expired, OrStatus: keystore.Revoked}},
		{Value: "expired", Name: "Expired keys", query: issuing.Query{Status: keystore.Expired}},
		{Value: "revoked", Name: "Revoked keys", query: issuing.Query{Status: keystore.Revoked}},
		{Value: "expiring", Name: "Expiring within 14 days", Care: true,
			query: issuing.Query{Status: keystore.Active, ExpiresBefore: now.Add(14 * day)}},
		{Value: "unused", Name: "Unused for 90 days", Care: true,
			query: issuing.Query{Status: keystore.Active, UnusedSince: now.Add(-90 * day)}},
		{Value: "never", Name: "Never used, over a day old", Care: true,
			query: issuing.Query{Status: keystore.Active, UnusedSince: now.Add(-day), NeverUsed: true}},
		{Value: unusedScopes, Name: "Scopes unused", Care: true,
			query: issuing.Query{Status: keystore.Active, ScopesUnusedSince: now.Add(-idleAfter)}},
	}
}

const unusedScopes = "scopes"

// Show returns the choice that Status names, or a zero one.
func (s selection) Show() (named show) {
	for _, c := range shows() {
		if c.Value == s.Status {
			named = c
		}
	}
	return named
}

// Narrows reports whether anything is left out that an unfiltered list has.
func (s selection) Narrows() bool { return s != selection{Sort: s.Sort} }

// query returns the address of the page at a place, relative to that of the
// list.
func (s selection) query(at place) string {
	q := make(url.Values)
	for name, value := range map[string]string{"q": s.Search, "environment": string(s.Environment), "status": s.Status,
		"parent": s.Parent, "by": s.By, "sort": string(s.Sort)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(at.trail) > 0 {
		q["after"] = at.trail
		q.Set("begin", strconv.Itoa(at.begin))
	}
	return "?" + q.Encode()
}

const longest = 255 // bytes of an id that a key's record takes

var noSuchPage = badRequest("The list has no page at this address. Choose from its filters.")

// readSelection returns also where the page begins.
func readSelection(u *url.URL) (s selection, at place, err error) {
	q, err := url.ParseQuery(u.RawQuery)
	s = selection{strings.TrimSpace(q.Get("q")), keystore.Environment(q.Get("environment")), q.Get("status"),
		q.Get("parent"), q.Get("by"), issuing.Order(q.Get("sort"))}
	if at.trail = q["after"]; err == nil && q.Has("begin") {
		at.begin, err = strconv.Atoi(q.Get("begin"))
	}
	sorted := slices.ContainsFunc(sorts, func(o option) bool { return o.Value == string(s.Sort) })
	if err != nil || !sorted || len(s.By) > longest || len(s.Search) > maxSearch || len(at.trail) > maxTrail ||
		at.begin < 0 || s.Environment != "" && !s.Environment.Known() || s.Show().Name == "" {
		return selection{}, place{}, noSuchPage
	}
	return s, at, nil
}

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
// no nanosecond has a number.
func cursor(k *keystore.Key, o issuing.Order) string {
	return strconv.FormatInt(o.At(k).UnixMicro(), 36) + "." + k.ID
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
	return &keystore.Key{CreatedAt: at, LastUsedAt: at, ExpiresAt: at, ID: id}, nil // one of the times counts
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
		trail := append(at.trail, cursor(keys[len(keys)-1], s.Sort))
		p.Next = s.query(place{trail[max(0, len(trail)-maxTrail):], p.Last})
	}
	return keys, p, nil
}

// find returns the keys of a selection at a place, at most limit, and the number of all from there on.
func (x *exchange) find(s selection, at place, limit int) (keys []*keystore.Key, total int, err error) {
	q := s.Show().query
	q.Environment, q.Search, q.Parent = s.Environment, s.Search, s.Parent
	q.CreatedBy, q.Order = s.By, s.Sort
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
