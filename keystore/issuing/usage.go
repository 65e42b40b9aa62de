package issuing

import (
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// Usage is what is known of the use of a key. A scope that is not in Scopes was
// not needed since ObservedSince, as far as all processes record uses. A day is
// its midnight in UTC.
//
// Requests are those that [keystore.Uses] has recorded; one that was
// refused later, by a limit or for lack of a scope, is among them, and needed
// no scope. What its children do is a use of a key.
type Usage struct {
	LastUsedAt    time.Time                `json:"last_used_at,omitzero"`   // zero: never used
	LastUsedFrom  netip.Addr               `json:"last_used_from,omitzero"` // the client's address then; zero: unknown
	ObservedSince time.Time                `json:"observed_since,omitzero"` // of Scopes and Days; zero: they are not kept
	Scopes        map[scope.Name]time.Time `json:"scopes,omitempty"`        // the last day on which a request needed it
	Days          []Day                    `json:"days,omitempty"`          // with requests, of the last 30, newest first
}

// A Day counts the requests of a day.
type Day struct {
	Date     time.Time `json:"date"`
	Requests int64     `json:"requests"`
}
