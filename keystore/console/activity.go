package console

import (
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// An activity is how a key is used, as its page shows it.
type activity struct {
	*keystore.Usage
	Observed bool // the store keeps more than when the key was last used
	Requests int64
	Most     int64 // requests on one day
	Bars     []bar // of 30 days, the oldest first
	Idle     []scope.Name
}

// A bar is a day of the chart, whose drawing is chartHeight high.
type bar struct {
	Date         time.Time
	Requests     int64
	X, Y, Height int64
}

const (
	chartDays   = 30
	chartStep   = 20 // from one bar to the next
	chartHeight = 100
)

// activity reads how k is used. A store that does not keep it leaves all but
// the time of the last use empty.
func (x *exchange) activity(k *keystore.Key) (a activity, err error) {
	a.Usage, err = x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
	if errors.Is(err, errors.ErrUnsupported) {
		a.Usage, err = &keystore.Usage{LastUsedAt: k.LastUsedAt}, nil
	}
	if err != nil || a.ObservedSince.IsZero() {
		return a, err
	}
	a.Observed, a.Idle = true, idleScopes(k, a.Usage)
	requests := make(map[time.Time]int64)
	for _, d := range a.Days {
		requests[d.Date.UTC()] = d.Requests
		a.Requests += d.Requests
		a.Most = max(a.Most, d.Requests)
	}
	today := time.Now().UTC().Truncate(day)
	for i := range int64(chartDays) {
		b := bar{Date: today.AddDate(0, 0, int(i)-chartDays+1), X: i * chartStep}
		if b.Requests = requests[b.Date]; b.Requests > 0 {
			const least = 3 // so that one request can be seen beside a million
			b.Height = max(least, int64(float64(b.Requests)/float64(a.Most)*chartHeight))
		}
		b.Y = chartHeight - b.Height
		a.Bars = append(a.Bars, b)
	}
	return a, nil
}

// A watched key is the end of a key that was replaced: it is quiet when nothing has
// used it since its successor was made, or for a day.
type watched struct {
	Old, New view
	Use      *keystore.Usage // of Old
	Quiet    bool
}

// watch returns that of k and its successor, or of k and the key it replaces,
// while the old one works; successor is nil if there is none.
func (x *exchange) watch(k *keystore.Key) (w *watched, successor *view, err error) {
	next, err := x.read(keystore.Page{RotatedFrom: k.ID}, 1)
	if err != nil {
		return nil, nil, err
	}
	old := k
	if len(next) == 1 && next[0].RotatedFrom == k.ID {
		v := x.view(next[0])
		k, successor = next[0], &v
	} else if k.RotatedFrom != "" {
		old, err = x.issuer.Key(x.r.Context(), k.Organization, k.RotatedFrom)
	}
	if errors.Is(err, keystore.ErrNotFound) || err == nil && (old == k || old.Refused() != nil) {
		return nil, successor, nil
	}
	if err != nil {
		return nil, nil, err
	}
	a, err := x.activity(old)
	quiet := a.Usage != nil && (a.LastUsedAt.Before(k.CreatedAt) || time.Since(a.LastUsedAt) > day)
	return &watched{x.view(old), x.view(k), a.Usage, quiet}, successor, err
}
