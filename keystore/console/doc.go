// Package console is the Developer section of an organization's dashboard: the
// pages where an administrator creates API keys, sees each secret once, finds
// keys that need care, edits, suspends, rotates and revokes them. [New] returns
// it as an http.Handler that a team mounts inside its own dashboard, under any
// prefix:
//
//	keys := console.New(issuer, admin, console.Options{})
//	mux.Handle("/developer/", http.StripPrefix("/developer", keys))
//
// The rules:
//
//   - The organization and the actor come from the admin function alone, never
//     from a path, a query or a form.
//   - A page is for administrators: without one the answer is 401 or 403 on
//     every path, whatever exists there. Whoever is ReadOnly sees the list, each
//     key and the audit; each of their POSTs is 403, as is each page with a form.
//   - Only a POST changes anything, and only one that the browser says comes
//     from the same origin, or that no browser sent. Browsers say so over HTTPS
//     and on loopback; over plain HTTP elsewhere their POSTs are refused.
//   - A secret is in the body of the one response to the POST that made it, and
//     nowhere else. A repeat of that POST makes no second key and shows none.
//   - Serve it from a host that only your dashboard uses, or that you trust
//     every page of: pages of the same origin can do what the administrator
//     can.
//
// A program that makes keys calls an [issuing.Issuer].
package console
