// Package keystore issues secret API keys, keeps their records and finds them
// again for each request.
//
//	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
//	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
//
//	secret, _, err := issuer.Issue(ctx, keystore.Grant{
//		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(secret.Reveal()) // the only time that anybody sees it
//
//	// For each request, with the text that the client sent:
//	token, err := issuer.Service().Parse(text)
//	if err != nil {
//		return err // it cannot be a key, and no store was asked
//	}
//	caller, err := token.Caller(ctx, keys, nil)
//	if err == nil && caller.Refused() == nil {
//		fmt.Println(caller.Organization(), "may", caller.Granted())
//	}
//
// The three main types: an [Issuer] makes, rotates and revokes keys in a
// [Manager], such as [Memory] or a database; a [Cached] stands in front of the
// store and answers most requests from memory; a [Key] is the record of one
// key, without its secret.
//
// Beside them: a [Service] says which scopes there are and what a token looks
// like, for example svc_live_ and 38 characters, also those of an older system
// if it is told their [LegacyFormat]. A [Store] finds a Key by the [Digest] of
// its token. [LastUsed] keeps when, from where and with which scopes keys were
// used. A [Policy] limits which keys are issued, and an [AuditEntry] says who
// did what to one.
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
//     from a cache. So MUST [Caller.AllowsAddress], by whoever knows the address
//     that a request comes from.
//   - After a revocation through a [Cached] has returned, no later Lookup of
//     that Cached finds the key live. For changes made elsewhere
//     [Cached.MaxStaleness] is the longest time until it notices.
//   - Recording a use MUST NOT undo a revocation, and MUST NOT delay a request.
//
// The package knows nothing of HTTP.
package keystore
