// Package idem makes a repeated request count once.
//
// A client that sends a request with an idempotency key and loses the answer sends it again with the same key. The second
// request must not do the work a second time: it gets the answer of the first. This package holds that promise without
// HTTP: what a key is ([ParseKey], [NewKey]), what makes two requests the same ([Fingerprint]), where claims and answers are
// kept ([Store], [Memory]), and who may run, who waits and who is told what ([Runner]).
//
// Three rules carry the rest.
//
//   - A lease says who may work now; retention says how long a key is remembered. A lapsed lease never erases the record: a
//     late [Store.Settle] counts as long as its token still holds the claim, and one whose claim was taken over gets [ErrLost].
//   - Only a proven "nothing happened" frees a key ([NotStarted]). Everything else ends as an answer or as an outcome that
//     nobody knows, and neither is run again unless the caller asked for that ([Claim.Reexecute]).
//   - A request that could not be saved is not forgotten: its claim is kept and renewed while the save is retried.
package idem
