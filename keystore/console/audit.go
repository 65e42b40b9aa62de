package console

import (
	"context"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// An Act is what an administrator did.
type Act string

// The acts.
const (
	Created Act = "created"
	Rotated Act = "rotated"
	Revoked Act = "revoked"
	Edited  Act = "edited"
)

// An Event says who did what to which key, and when. It holds no part of a
// secret. A repeat that changed nothing is no event.
type Event struct {
	Act         Act
	At          time.Time
	Actor       Actor
	KeyID       string // with Rotated: of the new key
	Name        string
	Environment keystore.Environment
	Scopes      []scope.Name
	Attributes  map[string]string
	Networks    []netip.Prefix // none: any
	ExpiresAt   time.Time      // zero: never
	Replaced    string         // with Rotated: id of the old key

	// OldKeyEnds says, with Rotated, when the old key is refused. Zero: it could
	// not be revoked, and Revoked follows when a repeat can.
	OldKeyEnds time.Time
}

func (x *exchange) audit(e Event, k *keystore.Key) {
	if x.options.Audit == nil {
		return
	}
	e.At = time.Now()
	e.Actor = x.actor
	e.KeyID, e.Name, e.Environment, e.ExpiresAt = k.ID, k.Name, k.Environment, k.ExpiresAt
	c := k.Clone() // the key is used afterwards
	e.Scopes, e.Attributes, e.Networks = c.Scopes, c.Attributes, c.Networks
	// The act has taken place even if the browser has gone.
	x.options.Audit(context.WithoutCancel(x.r.Context()), e)
}
