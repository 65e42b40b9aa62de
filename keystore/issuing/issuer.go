package issuing

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// An Issuer issues, rotates and revokes keys. Every method acts for one
// organization, but [Issuer.Keys] where it is asked for all. The caller checks
// that the person who asks is an administrator of that organization.
//
// Every act is audited. If the store, or that behind a [keystore.Cached], is an
// [Auditor], as a [Store] is, the entry is written in the transaction of the
// act, and [Issuer.Audit] reads it. [Options.Audit] is called after the act: a
// process that dies in between has acted and has not told. With neither, [New]
// warns by slog.Default().
//
// Over a [keystore.Cached], a key that the Issuer revokes is refused as soon as
// the call returns. It does not write in a transaction of others, see
// [keystore.InTransaction]. An Issuer is safe for concurrent use.
type Issuer struct {
	manager Manager
	cache   *keystore.Cached // in front of manager, or nil
	auditor Auditor          // manager, or nil if it keeps no audit
	options Options

	actor, reason string
}

// Options configures an [Issuer]. The zero value is ready to use, and limits
// nothing. Keys that are there already, and imported ones, stay as they are; the
// successor of a key has its expiry, or MaxLife if that is shorter, unless
// [Issuer.Rotate] is given another.
type Options struct {
	// Service says which scopes can be granted and what the tokens look like.
	// Where it is zero, that of the [keystore.Cached] is taken, if there is one.
	Service keystore.Service

	// Audit is told of each act after it has taken place, before the method
	// returns, by the goroutine that called it. [LogAudit] makes one. Nil:
	// nobody is told.
	Audit func(context.Context, AuditEntry)

	MaxLife time.Duration // longest time until a key expires: each needs an expiry then. Zero: any

	// MaxKeys is how many keys an organization may have. Those that have
	// expired, are revoked, or will be after a rotation do not count. Keys that
	// a rotation will end have a limit of their own, of the same number: once
	// it is reached, [Issuer.Rotate] takes no overlap but zero. Concurrent
	// calls of Rotate can each add the last one, those of Issue only if the
	// store is no [Auditor]. Zero: any number.
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

// New returns an Issuer of keys in a store: a [Manager], or a [keystore.Cached]
// in front of one. It panics when keys is neither, or embeds a Cached, whose
// own methods an Issuer would go past; when a limit is not valid; and when
// the service is not valid or another one than that of the Cached.
func New(keys keystore.Store, o Options) *Issuer {
	if absent(keys) {
		panic("issuing: New with a nil store")
	}
	service, err := o.Service.Resolve(keys)
	if err != nil {
		panic(err.Error())
	}
	o.Service = service
	if err := o.validate(); err != nil {
		panic(err.Error())
	}
	cache, itself := keystore.CacheOf(keys)
	if cache != nil {
		if !itself {
			panic(fmt.Sprintf("issuing: New with a %T, which embeds a Cached: give that Cached, "+
				"and make what the type adds a part of the store behind it", keys))
		}
		keys = cache.Store()
	}
	manager, ok := keys.(Manager)
	if !ok {
		panic(fmt.Sprintf("issuing: New with a %T, which only looks keys up and is no Manager", keys))
	}
	i := &Issuer{manager: manager, cache: cache, options: o}
	i.auditor, _ = manager.(Auditor)
	if i.auditor == nil && o.Audit == nil {
		slog.Warn("issuing: the store of an Issuer is no Auditor, and Options.Audit is nil: " +
			"nobody is told what is issued, rotated and revoked, and Erase is not supported")
	}
	return i
}

// Service returns the service whose keys are issued.
func (i *Issuer) Service() keystore.Service { return i.options.Service }

// absent reports whether v is nil, or a nil pointer in an interface.
func absent(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}
