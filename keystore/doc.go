// Package keystore checks secret API keys: it reads the text that a client has
// sent, finds the record of the key, and says who calls and what they may do.
// Package issuing makes the keys.
//
//	service := keystore.Service{Prefix: "acme"} // tokens begin with acme_live_ or acme_test_
//	keys := keystore.NewCached(store, keystore.CacheOptions{Service: service})
//
//	// For each request, with the text that the client sent:
//	token, err := service.Parse(text)
//	if err != nil {
//		return err // it cannot be a key, and no store was asked
//	}
//	caller, err := token.Caller(ctx, keys, service.Scopes)
//	if err == nil && caller.Refused() == nil {
//		fmt.Println(caller.Organization(), "may", caller.Granted())
//	}
//
// A [Service] says which scopes there are and what a token looks like, also one
// of an older system by its [LegacyFormat]. A [Store] finds a [Key] by the
// [Digest] of its token; a [Cached] in front of one answers most requests from
// memory. A [Caller] is the part of a Key that a request needs, or what
// [NewCaller] makes of a session. [Uses] keeps when, from where and with which
// scopes keys were used.
//
// The rules:
//
//   - A store MUST NOT see a token, only its digest: the SHA-256, or for a
//     legacy token what the older system made of it. A [Secret] is shown once
//     and never stored.
//   - Only [ErrNotFound], and a record that [Key.Refused] refuses, mean that a
//     key is invalid. Any other error means that the store could not answer:
//     the request MUST be refused, and MUST NOT be told that its key is wrong.
//   - A text that [Service.Parse] refuses MUST NOT reach the store.
//   - [Caller.Refused] MUST be asked for every request, also when the answer
//     comes from a cache. So MUST [Caller.AllowsAddress], by whoever knows the
//     address that a request comes from.
//   - After [Cached.Invalidate] has returned, and so after an issuer over the
//     Cached has revoked a key, no later Lookup finds the key as it was. Changes
//     made elsewhere are noticed within MaxStaleness of [CacheStats].
//   - Recording a use MUST NOT undo a revocation, and MUST NOT delay a request.
//
// The package knows nothing of HTTP.
package keystore
