package issuing

import (
	"context"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/keystore"
)

// An Issuer issues, rotates and revokes keys.
//
// The store writes an entry of the audit in the transaction of each act, which
// [Issuer.Audit] reads. [Options.Audit] is called after it: a process that dies in
// between has acted and has not told.
//
// Over a [keystore.Cached], a key that the Issuer revokes is refused as soon as
// the call returns. It does not write in the transaction of a joined request: a
// key would stay when that is rolled back. An Issuer is safe for concurrent use.
type Issuer struct {
	store   Store
	cache   *keystore.Cached // in front of store, or nil
	options Options

	actor, reason string
}

// Options configures an [Issuer]. The zero value is ready to use, and limits
// nothing. Keys that are there already, and imported ones, stay as they are; the
// successor of a key has its expiry, or MaxLife if shorter, or the [Rotation]'s.
type Options struct {
	// Service says which scopes can be granted and what the tokens look like.
	// Where it is zero, that of the [keystore.Cached] is taken, if there is one.
	Service keystore.Service

	// Audit is told of each act after it has taken place, before the method
	// returns, by the goroutine that called it. Nil: nobody is told.
	Audit func(context.Context, AuditEntry)

	MaxLife time.Duration // longest time until a key expires: each needs an expiry then. Zero: any

	// MaxKeys is how many keys an organization may have that have not expired and
	// will not be revoked. Keys that a rotation will end have a limit of their
	// own, of the same number: once it is reached, [Issuer.Rotate] takes no
	// Overlap but zero; concurrent calls of it can each add the last one. Zero:
	// any number.
	MaxKeys int

	// Of children, see [Issuer.Delegate]: the longest time until one expires;
	// how many may live at once below one key without a parent, theirs included,
	// which do not count in MaxKeys; and the names of the attributes that one may
	// have beside its parent's. Zero: any time, any number and no name. A revoked
	// child does not count, and those below it do until they end.
	MaxChildLife    time.Duration
	MaxChildren     int
	ChildAttributes []string
}

// New returns an Issuer of keys in a [Store], or behind a [keystore.Cached] in
// front of one. It panics when keys is neither, or embeds a Cached, past whose
// methods an Issuer would go; and when a limit or the service is not valid, or
// the service is another one than that of the Cached.
func New(keys keystore.Store, o Options) *Issuer {
	if arguments.Absent(keys) {
		panic("issuing: New with a nil store")
	}
	service, behind, err := o.Service.Resolve(keys)
	if err != nil {
		panic(err.Error())
	}
	o.Service = service
	if o.MaxLife < 0 || o.MaxKeys < 0 || o.MaxChildLife < 0 || o.MaxChildren < 0 {
		panic("issuing: Options with a negative limit")
	}
	if behind == nil {
		panic(fmt.Sprintf("issuing: New with a %T, which embeds a Cached: give that Cached, "+
			"and make what the type adds a part of the store behind it", keys))
	}
	store, ok := behind.(Store)
	if !ok {
		panic(fmt.Sprintf("issuing: New with a %T, which is no Store: keystoretest says what it lacks", behind))
	}
	cache, _ := keys.(*keystore.Cached)
	return &Issuer{store: store, cache: cache, options: o}
}

// Service returns the service whose keys are issued.
func (i *Issuer) Service() keystore.Service { return i.options.Service }
