package idemsql_test

import (
	"database/sql"
	"runtime"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A Join whose statement began before another's reply was committed, and that
// gets the lock of the key after that, finds the reply.
func TestReplyCommittedAfterSnapshot(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			d := postgres(t)
			db := d.open(t)
			c := claim("key")
			_, first := join(t, d.on(db, idemsql.Options{}), c, idem.Claimed)

			// The second one's statement waits here before it asks for the lock.
			execute(t, db, `
				CREATE FUNCTION pg_try_advisory_xact_lock(integer, integer) RETURNS boolean LANGUAGE plpgsql AS $$
				BEGIN
					PERFORM pg_advisory_xact_lock(hashtext(current_schema()));
					RETURN pg_catalog.pg_try_advisory_xact_lock($1, $2);
				END $$`)
			gate, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Rollback()
			execute(t, gate, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
			slow := d.with("search_path", d.conf.RuntimeParams["search_path"]+", pg_catalog")
			second := slow.on(slow.open(t), idemsql.Options{Isolation: level})
			type answer struct {
				record idem.Record
				joined idem.Transaction
				err    error
			}
			answers := make(chan answer)
			go func() {
				r, j, err := second.Join(t.Context(), again(c))
				answers <- answer{r, j, err}
			}()
			for count(t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = current_setting('application_name') AND wait_event = 'advisory'`) == 0 {
				runtime.Gosched()
			}

			if err := first.Settle(t.Context(), finished("answer")); err != nil {
				t.Fatal(err)
			}
			gate.Rollback()
			a := <-answers
			if a.joined != nil {
				a.joined.Settle(t.Context(), notStarted)
			}
			if a.err != nil || a.record.State != idem.Done || string(a.record.Payload) != "answer" {
				t.Errorf("got %v %q, error %v, want the reply", a.record.State, a.record.Payload, a.err)
			}
		})
	}
}
