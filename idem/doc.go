// Package idem makes a repeated request count once.
//
//	runner := idem.NewRunner(&idem.Memory{}, idem.Options{})
//
//	create := func(key, body string) (string, error) {
//		record, execution, err := runner.Begin(ctx, idem.Claim{
//			Key:         idem.NewKey("acme production", key),
//			Tenant:      "acme production",
//			Fingerprint: sha256.Sum256([]byte(body)),
//		}, nil)
//		switch {
//		case err != nil: // ErrMismatch is the client's mistake; after any other it may try again
//			return "", err
//		case execution == nil && record.State == idem.Done: // a repeat
//			return string(record.Payload), nil
//		case execution == nil: // a repeat of what has not ended, or whose outcome is lost
//			return "", fmt.Errorf("the first request is %v", record.State)
//		}
//		defer execution.Settle(ctx, idem.Settlement{}) // after a panic; it does nothing once it is settled
//		reply := "created: " + body
//		return reply, execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(reply)})
//	}
//
// Its main types are three.
//
//   - [Runner] decides which request runs, which waits and what each gets.
//   - [Store] keeps claims and replies. [Memory] is one.
//   - [Execution] is a request that runs. How it is settled is the reply to
//     every repeat.
//
// A tenant is usually an organization in one environment, such as production:
// claims and replies belong to it.
//
// A client sends a request with an idempotency key, loses the response, and sends
// the request again with the same key. A [Key] names a request of one client;
// two requests with one Key are the same if their Fingerprint is. A [Claim] asks
// a Store for the right to run a request, and is held until it is settled.
//
// Three rules hold everywhere.
//
//   - A lease says who may work now; retention says how long a key is
//     remembered. A lapsed lease never erases the record: a late [Store.Settle]
//     counts as long as its token still holds the claim, and one whose claim
//     was taken over gets [ErrLost].
//   - Only a proven "nothing happened" frees a key ([OutcomeFree]). Everything
//     else ends as a reply or as an unknown outcome. Neither is run again,
//     except an unknown one by a caller that asks for it ([Claim.Reexecute]). That
//     one stays unknown until a run of it ends with a reply.
//   - An outcome that could not be saved is not forgotten: its claim is renewed
//     while the save is retried. When the store fails to answer a Begin, it
//     may hold a claim that nobody runs. The Runner tries to undo it until the
//     store confirms that, as long as the process lives.
//
// # Units
//
// A [Counter] charges an [Account] for what is done, once for each Key, and says
// what it has used. So a consumer of a queue keeps a quota:
//
//	consume := func(m message) error {
//		account := idem.NewAccount(m.tenant)
//		record, execution, err := runner.Begin(ctx, idem.Claim{Key: idem.NewKey(m.tenant, m.id), Tenant: m.tenant,
//			Fingerprint: sha256.Sum256([]byte(m.body)), Account: account, Units: 1}, nil)
//		switch {
//		case err != nil || execution == nil && record.State != idem.Done:
//			return cmp.Or(err, errLater)
//		case execution == nil: // it came again, and is not charged again
//			return nil
//		}
//		defer execution.Settle(ctx, idem.Settlement{}) // after a panic: 1 unit, uncertain
//		month, _ := idem.Month.Bounds(time.Now())
//		if used, _, err := store.Used(ctx, account, month); err != nil || used >= 100 {
//			return cmp.Or(err, execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeFree}), errLater)
//		}
//		return execution.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeDone, Units: convert(m)})
//	}
//
// An unknown outcome stays charged until its claim is taken over; see [Charge].
package idem
