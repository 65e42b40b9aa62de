package console

import (
	"strconv"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxCount = 99 // the strip says "99+" for more

	idleAfter = 100 * day // longer than a quarter, so that a job of each quarter keeps its scopes
)

// care returns those of the choices that need some, with the number of their
// keys. Those with unused scopes are not counted: that takes the use of each.
func (x *exchange) care() (counted []show, err error) {
	for _, c := range shows {
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
