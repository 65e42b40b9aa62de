// Package retrytest finds the handlers that make something twice, or that lose
// it, when a client retries. Middleware cannot see what a handler does beside
// its transaction; a test can, which cuts every create off at each of its steps,
// repeats it and counts what there is.
//
//	func TestCreatesAreSafeToRetry(t *testing.T) {
//		db := openSQLite(t)
//		retrytest.Suite{
//			Server: func(p *retrytest.Process) http.Handler {
//				pool := p.DB(db)
//				runner := idem.NewRunner(idemsql.SQLite(pool, idemsql.Options{}), idem.Options{Join: true})
//				return newServer(pool, p.Idempotency(middleware.IdempotencyOptions{Runner: runner, Required: true}))
//			},
//			Creates: []retrytest.Create{{
//				Path:   "/v2/parcels",
//				Header: http.Header{"Authorization": {"Bearer " + key}},
//				Body:   `{"to": "Lisbon", "reference": "{{random}}"}`,
//			}},
//			Effects: map[string]func(context.Context) (int, error){
//				"parcels": func(ctx context.Context) (n int, err error) {
//					err = db.QueryRowContext(ctx, "SELECT count(*) FROM parcels").Scan(&n)
//					return n, err
//				},
//			},
//		}.Run(t)
//	}
//
// Each create is run without a fault, to learn its steps: the statements of the
// databases, BEGIN and COMMIT among them, the claim and the settlement of its
// key by a store that sends none, and the calls of other services. If that fails,
// as in SQLite where something is written beside the transaction of the request,
// the report has its steps, the last error and what stood beside. Else it is
// run again for each step and each fault, with a new Idempotency-Key and a new
// server:
//
//   - The connection breaks before the step takes effect, and after it.
//   - The process crashes before the step takes effect, and after it. Another
//     process gets the repeat; the lease of the claim has lapsed.
//   - The client leaves.
//   - At the steps of the server's own code also: the database refuses the
//     statement; the deadline of the handler passes; a repeat comes to another
//     process at the same time; in lease mode the claim is lost, a repeat comes
//     to another process, and then this one goes on.
//
// And the response is cut off after none, one and half of its bytes. After each
// the request is repeated until there is a final answer. A line says what became
// of them, here of a handler with a transaction of its request:
//
//	POST /v2/parcels  6 steps  36 faults  once 36  twice 0  lost 0  unknown 0
//
// Once is what a create without a fault does. Unknown is a client that was
// told of a failure while there is nothing, or the effect once: in lease mode
// that is what a crash must give. In joined mode a part of the effect is lost,
// and so is an effect that the handler denies, as by a 409, also under
// idem.Options.Reexecute. Twice and lost fail the test, and the failure names the
// fault, the line of the code, and what to write in its place.
//
// A step is found again by its text, without literals and the names of
// savepoints, or else by its line and how often that has run. A step that is
// found by neither fails the test: a create takes the same steps each time.
//
// # What it does not find
//
//   - Effects that Effects does not count: mail, a cache, a file. Give the server
//     a fake of another service, count what that did, and let the fake make its
//     calls by [Process.Conn], so that they are steps too. It is a value in the
//     test: an httptest.Server could not be closed after a crash.
//   - Two faults in one create, and faults in what runs only after a fault.
//   - What is done by a goroutine more than a second after the response, by a
//     timer, or by another program: an outbox's sender must have a test of its own.
//   - What depends on the data: another body may take another way. Each way is a
//     Create.
//   - A process that stops between two steps. What happens there without a step
//     has no line in the report.
//   - In lease mode, a crash between two statements that each stand alone: one
//     row of two is there, and the client is told that the outcome is unknown.
//   - Deadlocks and failures to serialize, and servers of a database that lose
//     what they have committed.
//   - What a handler does by [database/sql.Conn.Raw]. It sees the connection of
//     this package in place of the driver's.
//
// The goroutines of a process that has crashed stay where they are until the
// test binary ends.
package retrytest
