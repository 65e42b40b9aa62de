package idemsql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// No statement looks at more than 500 rows, also where few are the owner's.
func TestEraseInBatches(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		var seen trips
		store := d.on(d.watched(t, seen.watch), idemsql.Options{})
		d.fill(t, d.open(t), 1200, aDay)
		for i := range 3 {
			begin(t, store, ofAcme(fmt.Sprint(i)), idem.Claimed)
		}
		seen.take()
		if n, err := store.Erase(t.Context(), "acme"); n != 3 || err != nil {
			t.Errorf("Erase: got %d, %v, want 3", n, err)
		}
		selects := 0
		for _, word := range seen.take() {
			if word == "SELECT" {
				selects++
			}
		}
		if selects != 4 { // 500, 500, 203 and none
			t.Errorf("Erase of 1,203 rows took %d queries, want 4", selects)
		}
	})
}

// Erase waits for no row of another organization, which MariaDB would lock if a
// statement named it.
func TestEraseBesideAnother(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		first, last := ofAcme("first"), claim("last")
		first.Key, last.Key = idem.Key{1}, idem.Key{2}
		begin(t, store, first, idem.Claimed)
		begin(t, store, last, idem.Claimed)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		key := "decode('%x', 'hex')"
		if d.my != nil {
			key = "UNHEX('%x')"
		}
		execute(t, tx, fmt.Sprintf("UPDATE sallyport_idem SET attempt = attempt WHERE request_key = "+key, last.Key[:]))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := store.Erase(ctx, "acme"); n != 1 || err != nil {
			t.Errorf("Erase beside a locked row of another organization: got %d, %v, want 1", n, err)
		}
	})
}

// A joined request that runs is neither waited for nor lost: it has no row that
// others see.
func TestEraseBesideJoined(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		_, j := join(t, store, ofAcme("key"), idem.Claimed)
		if n, err := store.Erase(t.Context(), "acme"); n != 0 || err != nil {
			t.Errorf("Erase while it runs: got %d, %v, want none", n, err)
		}
		mustEnd(t, j, finished("answer"))
		if n, err := store.Erase(t.Context(), "acme"); n != 1 || err != nil {
			t.Errorf("Erase when it has ended: got %d, %v, want 1", n, err)
		}
	})
}

// A database that fails is an error, and so is a context that has ended.
func TestEraseErrors(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		there := func(want bool) {
			t.Helper()
			if got, err := store.HasTable(t.Context()); got != want || err != nil {
				t.Errorf("HasTable: got %t, %v, want %t", got, err, want)
			}
		}
		there(true)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := store.Erase(ended, "acme"); err == nil {
			t.Error("Erase with a context that has ended: got no error")
		}
		execute(t, db, "DROP TABLE sallyport_idem")
		there(false)
		if _, err := store.Erase(t.Context(), "acme"); err == nil || !strings.HasPrefix(err.Error(), "idemsql: erase") {
			t.Errorf("Erase without the table: got %v", err)
		}
		closed := d.open(t)
		shut(closed)
		if _, err := d.on(closed, idemsql.Options{}).HasTable(t.Context()); err == nil {
			t.Error("HasTable of a database that is closed: got no error")
		}
	})
}

// While a joined request holds a row that has expired and was not added up, Erase
// does not ask without pause.
func TestEraseBesideTakeOver(t *testing.T) {
	in(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		begin(t, s, of("acme", 5, ofAcme("key")), idem.Claimed)
		execute(t, db, "UPDATE sallyport_idem SET state = 4, expires_at = now() + interval '1 second'")
		next := of("acme", 5, ofAcme("key"))
		next.Reexecute = true
		_, j := join(t, s, next, idem.Claimed)
		<-time.After(1100 * time.Millisecond)
		var seen trips
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := d.on(d.watched(t, seen.watch), keepsAll).Erase(ctx, "acme")
		if n := len(seen.take()); !errors.Is(err, context.DeadlineExceeded) || n > 8*21 {
			t.Errorf("Erase: got %v after %d statements in 2 seconds", err, n)
		}
		mustEnd(t, j, using(7, finished("answer")))
		mustUse(t, s, "acme", 7)
	}, "postgres")
}
