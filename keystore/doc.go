// Package keystore issues secret API keys, keeps their records and finds them
// again for each request.
//
// A token is the text a client sends, such as svc_live_ and 38 characters; a
// [Service] makes and reads it, and accepts those of an older system when it is
// told their [LegacyFormat]. A [Key] is the record of one token, without its
// secret. A [Store] finds a Key by the [Digest] of its token; a [Manager] also
// changes keys. [Memory] is a Manager that keeps them in the process,
// [Cached] stands in front of any Store, and an [Issuer] makes, rotates and
// revokes keys in a Manager.
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
//   - Key.Refused MUST be asked for every request, also when the record comes
//     from a cache. So MUST [Key.AllowsAddress], by whoever knows the address
//     that a request comes from.
//   - After a revocation through a [Cached] has returned, no later Lookup of
//     that Cached finds the key live. For changes made elsewhere
//     [Cached.MaxStaleness] is the longest time until it notices.
//   - Recording a use MUST NOT undo a revocation, and MUST NOT delay a request.
//
// The package knows nothing of HTTP.
package keystore
