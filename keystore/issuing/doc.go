// Package issuing makes, changes and ends the API keys that package keystore
// checks, and says who did it.
//
//	keys, issuer := issuing.InMemory(keystore.Service{Prefix: "acme"})
//
//	secret, key, err := issuer.By("ada", "").Issue(ctx, keystore.Key{
//		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(secret.Reveal()) // the only time that anybody sees it
//
//	_, err = issuer.By("ada", issuing.ReasonLeaked).Revoke(ctx, "acme", key.ID)
//
// An [Issuer] issues a key within its [Options], makes children of it, and edits,
// rotates, revokes and imports keys. It writes to a [Store], such as that of
// package keysql, and through a [keystore.Cached] in front of it, so that what
// it has changed is seen at once. The store keeps an [AuditEntry] of what it does.
//
// The rules:
//
//   - An Issuer acts for one organization at a time. Its caller MUST check that
//     whoever asks may act for that organization. [Query.AllOrganizations] reads
//     keys of all, and is for those who operate the service.
//   - Scopes, networks and expiry are chosen when a key is issued. An edit only
//     takes away; more needs a new key.
//   - A child can do no more than its parent, now and later, and is refused with
//     it.
//   - A key has one successor for ever, and its secret is shown once.
//   - A store writes a change and its entry both or neither.
package issuing
