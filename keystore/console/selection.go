package console

import (
	"errors"
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
	Search      string // in the name, the id and the last characters
	Environment keystore.Environment
	Status      string // the Value of a show
}

// A show is a choice of keys by their status, or of those that need care.
type show struct {
	Value, Name string
	Care        bool
	Count       string // with Care: "0", "7", "99+"
	statuses    []keystore.Status

	page func(now time.Time) issuing.Page // nil: all

	// among returns those of the keys that are shown, and in place of last the
	// last that it has looked at, if there are others. Nil: all keys.
	among func(x *exchange, keys []*keystore.Key, last *keystore.Key) ([]*keystore.Key, *keystore.Key, error)
}

const (
	day       = 24 * time.Hour
	maxSearch = 800 // bytes, of the 200 characters that the field takes
)

var active = []keystore.Status{keystore.Active}

var shows = []show{
	{Value: "", Name: "Live keys", statuses: []keystore.Status{keystore.Active, keystore.Suspended}},
	{Value: "suspended", Name: "Suspended keys", statuses: []keystore.Status{keystore.Suspended}},
	{Value: "ended", Name: "Ended keys", statuses: []keystore.Status{keystore.Expired, keystore.Revoked}},
	{Value: "expired", Name: "Expired keys", statuses: []keystore.Status{keystore.Expired}},
	{Value: "revoked", Name: "Revoked keys", statuses: []keystore.Status{keystore.Revoked}},
	{Value: "expiring", Name: "Expiring within 14 days", Care: true, statuses: active,
		page: func(now time.Time) issuing.Page { return issuing.Page{ExpiresBefore: now.Add(14 * day)} }},
	{Value: "unused", Name: "Unused for 90 days", Care: true, statuses: active,
		page: func(now time.Time) issuing.Page { return issuing.Page{UnusedSince: now.Add(-90 * day)} }},
	{Value: "never", Name: "Never used, over a day old", Care: true, statuses: active,
		page: func(now time.Time) issuing.Page { return issuing.Page{UnusedSince: now.Add(-day), NeverUsed: true} }},
	{Value: "scopes", Name: "Scopes unused", Care: true, statuses: active, among: (*exchange).withIdleScopes},
}

// shows returns the choices that the store can answer.
func (x *exchange) shows() []show {
	_, err := x.issuer.Usage(x.r.Context(), x.actor.Organization, "none")
	if errors.Is(err, errors.ErrUnsupported) {
		return shows[:len(shows)-1]
	}
	return shows
}

// Show returns the choice that Status names.
func (s selection) Show() show {
	return shows[slices.IndexFunc(shows, func(c show) bool { return c.Value == s.Status })]
}

// Narrows reports whether anything is left out that an unfiltered list has.
func (s selection) Narrows() bool { return s != selection{} }

// matches reports whether k is what is searched. Hint and masked token have to
// be whole, or "live" would match every key.
func (s selection) matches(k *keystore.Key, masked string) bool {
	q := strings.ToLower(s.Search)
	return strings.Contains(strings.ToLower(k.Name), q) || strings.HasPrefix(strings.ToLower(k.ID), q) ||
		strings.EqualFold(k.Hint, q) || strings.EqualFold(masked, q)
}

// query returns the address of the page after a key, or of the first one,
// relative to that of the list.
func (s selection) query(after *keystore.Key) string {
	q := make(url.Values)
	for name, value := range map[string]string{"q": s.Search, "environment": string(s.Environment), "status": s.Status} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if after != nil {
		q.Set("after", strconv.FormatInt(after.CreatedAt.UnixNano(), 36)+"."+after.ID)
	}
	return "?" + q.Encode()
}

// readSelection returns also the key after which the page begins, or nil.
func readSelection(u *url.URL, shows []show) (s selection, after *keystore.Key, err error) {
	q, err := url.ParseQuery(u.RawQuery)
	s = selection{strings.TrimSpace(q.Get("q")), keystore.Environment(q.Get("environment")), q.Get("status")}
	if nanos, id, found := strings.Cut(q.Get("after"), "."); found && err == nil {
		var n int64
		n, err = strconv.ParseInt(nanos, 36, 64)
		after = &keystore.Key{CreatedAt: time.Unix(0, n).UTC(), ID: id}
	}
	if err != nil || len(s.Search) > maxSearch || q.Has("after") && after == nil ||
		s.Environment != "" && !s.Environment.Known() ||
		!slices.ContainsFunc(shows, func(c show) bool { return c.Value == s.Status }) {
		return s, nil, badRequest("The list has no page at this address. Choose from its filters.")
	}
	return s, after, nil
}
