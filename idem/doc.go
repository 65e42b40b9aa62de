// Package idem makes a repeated request count once.
//
// A client sends a request with an idempotency key and loses the answer. It
// sends the request again with the same key. The work must not be done a second
// time: the second request gets the answer of the first. This package keeps
// that promise without HTTP:
//
//   - A [Key] names a request of one client. Two requests with one Key are the
//     same if their [Fingerprint] is.
//   - A [Store] keeps claims and answers; [Memory] is one.
//   - A [Runner] decides which request runs, which waits and what each gets.
//
// A [Claim] asks a Store for the right to run a request. It is held under a key
// until it is settled. An [Execution] is the run itself, in the process that
// holds the claim. How it ends is recorded, and is the answer to every repeat.
//
// Three rules hold everywhere.
//
//   - A lease says who may work now; retention says how long a key is
//     remembered. A lapsed lease never erases the record: a late [Store.Settle]
//     counts as long as its token still holds the claim, and one whose claim
//     was taken over gets [ErrLost].
//   - Only a proven "nothing happened" frees a key ([NotStarted]). Everything
//     else ends as an answer or as an unknown outcome. Neither is run again,
//     except an unknown one by a caller that asks for it ([Claim.Reexecute]).
//   - An outcome that could not be saved is not forgotten: its claim is renewed
//     while the save is retried. When the store fails to answer a Begin, it
//     may hold a claim that nobody runs. The Runner tries to undo it until the
//     store confirms that, as long as the process lives.
package idem
