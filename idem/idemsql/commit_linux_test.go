package idemsql_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
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
		{"full, with a WAL", "WAL", "2000000", false},
		{"full, with a journal", "DELETE", "2000000", false},
		{"busy", "DELETE", "1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, os.ErrPermission) {
				t.Skip("left out: idemsql on a disk that is full; it needs root, to mount a small one")
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
			d := database{name: "sqlite", file: filepath.Join(dir, "idem.db")}
			// The cache has room for all that the transaction writes.
			db, err := sql.Open("sqlite", "file:"+d.file+"?_pragma=busy_timeout(1)&_pragma=cache_size(-64000)&_pragma=journal_mode("+test.journal+")")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			store := idemsql.SQLite(db, idemsql.Options{})
			mustMigrate(t, "a small disk", store)
			execute(t, db, "CREATE TABLE tasks (title text)")

			c := claim("key")
			_, j := join(t, store, c, idem.Claimed)
			tx, _ := idemsql.Tx(j.Context(t.Context()))
			execute(t, tx, "INSERT INTO tasks VALUES (hex(zeroblob("+test.size+")))")
			var reader *sql.Rows
			if test.reads {
				if reader, err = db.QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT count(*) FROM tasks"); err != nil || !reader.Next() {
					t.Fatal(err)
				}
			}
			if err := j.Settle(t.Context(), finished("answer")); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
				t.Errorf("got error %v, want one that does not leave open whether it was committed", err)
			}
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
