package console

import (
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// An activity is how a key is used, as its page shows it.
type activity struct {
	*issuing.Usage
	Observed bool // its requests were counted
	Requests int64
	Most     int64 // requests on one day
	Bars     []bar // of 30 days, the oldest first
	Idle     []scope.Name
}

// A bar is a day of the chart, whose drawing is chartHeight high.
type bar struct {
	Date      time.Time
	Requests  int64
	X, Height int64
}

const chartDays, chartStep, chartHeight = 30, 20, 100 // a step is from one bar to the next

// activity reads how k is used.
func (x *exchange) activity(k *keystore.Key) (a activity, err error) {
	a.Usage, err = x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
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
		a.Bars = append(a.Bars, b)
	}
	return a, nil
}

// idleScopes returns the scopes of k that no request has needed for 100 days, if
// some of its others were. They can be taken away, and nothing that the key did
// in this time will be refused.
func idleScopes(k *keystore.Key, use *issuing.Usage) (idle []scope.Name) {
	since := time.Now().Add(-idleAfter)
	if use.ObservedSince.IsZero() || use.ObservedSince.After(since) {
		return nil
	}
	for _, n := range k.Scopes {
		if use.Scopes[n].Before(since.UTC().Truncate(day)) {
			idle = append(idle, n)
		}
	}
	if len(idle) == len(k.Scopes) {
		return nil
	}
	return idle
}

// A watched key was replaced by another one.
type watched struct {
	Old, New view
	Use      *issuing.Usage // of Old
}

// watch returns k with its successor, or the key that k replaces with k, or nil
// if there is neither.
func (x *exchange) watch(k *keystore.Key) (*watched, error) {
	old := k
	next, err := x.issuer.Keys(x.r.Context(), k.Organization, issuing.Query{RotatedFrom: k.ID, Limit: 1})
	if len(next.Keys) == 1 {
		k = next.Keys[0]
	} else if err == nil && k.RotatedFrom != "" {
		old, err = x.issuer.Key(x.r.Context(), k.Organization, k.RotatedFrom)
	}
	if errors.Is(err, keystore.ErrNotFound) || err == nil && old == k {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	use, err := x.activity(old)
	if err != nil {
		return nil, err
	}
	return &watched{x.view(old), x.view(k), use.Usage}, nil
}

// Since reports whether the old key was used after the new one was made.
func (w *watched) Since() bool { return w.Use.LastUsedAt.After(w.New.CreatedAt) }

// Quiet reports whether the day on which the old key was to be used again, by
// its days of use, is over. Where these do not tell, it is the day after the
// last use, and the new key has to be used since.
func (w *watched) Quiet() bool {
	last := w.Use.LastUsedAt
	if last.Before(w.Old.CreatedAt) {
		last = w.Old.CreatedAt
	}
	over := last.UTC().Truncate(day).AddDate(0, 0, max(w.Apart(), 1)+1)
	known := time.Now().Add(-time.Hour) // Uses writes it far more often, by an interval that no page knows
	return known.After(w.New.CreatedAt) && known.After(over) && (w.Apart() > 0 || w.New.LastUsedAt.After(w.Use.LastUsedAt))
}

// Apart returns how many days it took at most from one day of use to the next,
// or zero if the days that are kept do not tell: there are fewer than two, or
// there was no use for longer before the first of them.
func (w *watched) Apart() (most int) {
	use := w.Use
	next := use.LastUsedAt.UTC().Truncate(day)
	for _, d := range use.Days {
		most = max(most, int(next.Sub(d.Date)/day))
		next = d.Date
	}
	kept := next.Sub(time.Now().UTC().Truncate(day).AddDate(0, 0, 1-chartDays))
	if before := min(kept, next.Sub(use.ObservedSince.UTC().Truncate(day))); int(before/day) > most {
		return 0
	}
	return most
}
