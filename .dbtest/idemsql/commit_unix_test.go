//go:build unix

package idemsql_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// What SQLite cannot write or lock at COMMIT is not committed, and the error
// does not leave it open.
func TestCommitThatSQLiteRefuses(t *testing.T) {
	for _, test := range []struct {
		name, journal string
		size          string // of the title that the handler writes
		reads         bool   // another connection, which a COMMIT without a WAL waits for
	}{
		{"no room, with a WAL", "WAL", "2000000", false},
		{"no room, with a journal", "DELETE", "2000000", false},
		{"busy", "DELETE", "1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := database{name: "sqlite", file: filepath.Join(t.TempDir(), "idem.db")}
			// The cache has room for all that the transaction writes.
			db, err := sql.Open("sqlite", "file:"+d.file+
				"?_pragma=busy_timeout(1)&_pragma=cache_size(-64000)&_pragma=journal_mode("+test.journal+")")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			store := idemsql.SQLite(db, idemsql.Options{})
			mustMigrate(t, test.name, store)
			execute(t, db, "CREATE TABLE tasks (title text)")

			c := claim("key")
			_, j := join(t, store, c, idem.Claimed)
			tx, _ := idemsql.Tx(j.Context(t.Context()))
			execute(t, tx, "INSERT INTO tasks VALUES (hex(zeroblob("+test.size+")))")
			var reader *sql.Rows
			if test.reads {
				reader, err = db.QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT count(*) FROM tasks")
				if err != nil || !reader.Next() {
					t.Fatal(err)
				}
			}
			unlimited := limitFiles(t)
			if err := j.Settle(t.Context(), finished("answer")); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
				t.Errorf("got error %v, want one that does not leave open whether it was committed", err)
			}
			unlimited()
			if reader != nil {
				reader.Close()
			}
			mustCount(t, db, "SELECT count(*) FROM tasks", 0)
			_, j = join(t, store, again(c), idem.Claimed)
			if err := j.Settle(t.Context(), finished("answer")); err != nil {
				t.Errorf("with room: %v", err)
			}
			begin(t, store, again(c), idem.Done)
		})
	}
}

// limitFiles lets no file of this process grow beyond 1 MiB, which SQLite
// meets like a full disk, until the function is called that it returns.
func limitFiles(t *testing.T) (unlimited func()) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	small := was
	small.Cur = 1 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	unlimited = sync.OnceFunc(func() { syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was) })
	t.Cleanup(unlimited)
	return unlimited
}
