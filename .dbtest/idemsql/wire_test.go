package idemsql_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
)

// through returns the database as it is reached over a wire.
func (d database) through(w *sqltest.Wire) database {
	if d.my != nil {
		d.my = w.MySQL(d.my)
		return d
	}
	d.conf = d.conf.Copy()
	d.conf.DialFunc, d.conf.Fallbacks = w.Dial, nil
	return d
}

// commitFault is what becomes of the next COMMIT.
type commitFault struct{ atomic.Uint32 }

func (f *commitFault) set(fault sqltest.Fault) { f.Store(uint32(fault)) }

// isToCome reports whether there was no COMMIT since it was set.
func (f *commitFault) isToCome() bool { return sqltest.Fault(f.Load()) != sqltest.None }

// faulty returns the database over a wire, and the fault of its next COMMIT.
func (d database) faulty() (database, *commitFault) {
	f := new(commitFault)
	commits := []string{"commit\x00", "\x03commit"}
	if d.pgx && d.conf.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// It binds a statement that it has prepared.
		digest := sha256.Sum256([]byte("commit"))
		commits = []string{fmt.Sprintf("\x00stmtcache_%x\x00", digest[:24])}
	}
	w := &sqltest.Wire{Request: func(_ *sqltest.Conn, request []byte) sqltest.Fault {
		request = bytes.ToLower(request)
		if !slices.ContainsFunc(commits, func(c string) bool { return bytes.Contains(request, []byte(c)) }) {
			return sqltest.None
		}
		return sqltest.Fault(f.Swap(uint32(sqltest.None)))
	}}
	w.Answers = map[sqltest.Fault]string{
		sqltest.Terminate: postgresError("57P01", "terminating connection"),
		sqltest.Refuse:    postgresError("40P01", "deadlock detected"),
	}
	if d.my != nil {
		w.Answers = map[sqltest.Fault]string{
			sqltest.Terminate: mysqlError(1053, "08S01", "Server shutdown in progress"),
			sqltest.Refuse:    mysqlError(1213, "40001", "Deadlock found when trying to get lock"),
		}
	}
	return d.through(w), f
}

// postgresError is an ErrorResponse, whose length counts itself.
func postgresError(state, message string) string {
	fields := "SFATAL\x00VFATAL\x00C" + state + "\x00M" + message + "\x00\x00"
	return "E\x00\x00\x00" + string(rune(4+len(fields))) + fields
}

// mysqlError is an ERR packet, the first one of an answer.
func mysqlError(number uint16, state, message string) string {
	body := string([]byte{0xff, byte(number), byte(number >> 8)}) + "#" + state + message
	return string([]byte{byte(len(body)), 0, 0, 1}) + body
}
