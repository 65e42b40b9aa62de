package issuing

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"

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
	service keystore.Service
	policy  Policy
	audit   func(context.Context, AuditEntry)

	actor, reason string
}

// Options configures an [Issuer]. The zero value is ready to use.
type Options struct {
	// Service says which scopes can be granted and what the tokens look like.
	// Where it is zero, that of the [keystore.Cached] is taken, if there is one.
	Service keystore.Service

	// Policy limits which keys are issued.
	Policy Policy

	// Audit is told of each act after it has taken place, before the method
	// returns, by the goroutine that called it. [LogAudit] makes one. Nil:
	// nobody is told.
	Audit func(context.Context, AuditEntry)
}

// New returns an Issuer of keys in a store: a [Manager], or a [keystore.Cached]
// in front of one. It panics when keys is neither, or embeds a Cached, whose
// own methods an Issuer would go past; when the policy is not valid; and when
// the service is not valid or another one than that of the Cached.
func New(keys keystore.Store, o Options) *Issuer {
	if absent(keys) {
		panic("issuing: New with a nil store")
	}
	service, err := o.Service.Resolve(keys)
	if err != nil {
		panic(err.Error())
	}
	if err := o.Policy.validate(service.Scopes); err != nil {
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
	i := &Issuer{manager: manager, cache: cache, service: service, policy: o.Policy, audit: o.Audit}
	i.auditor, _ = manager.(Auditor)
	if i.auditor == nil && i.audit == nil {
		slog.Warn("issuing: the store of an Issuer is no Auditor, and Options.Audit is nil: " +
			"nobody is told what is issued, rotated and revoked, and Erase is not supported")
	}
	return i
}

// Service returns the service whose keys are issued.
func (i *Issuer) Service() keystore.Service { return i.service }

// absent reports whether v is nil, or a nil pointer in an interface.
func absent(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}
