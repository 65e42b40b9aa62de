package idemsql

import "errors"

const (
	serializationFailure    = "40001"
	mysqlRolledBackAtCommit = 3101
)

// sqlState returns the SQLSTATE of an error that the server sent, or "". The
// drivers of Postgres have it by this method.
func sqlState(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// refused reports whether the answer to a COMMIT proves that the transaction
// was rolled back. What the server says before it has committed does: a
// constraint or a trigger that was deferred, a transaction that had failed or
// that cannot be serialized. All else, and 40003, may have come after.
//
// MySQL sends such an answer as a node of a cluster whose transaction met
// another one.
func refused(err error) bool {
	switch mysqlNumber(err) {
	case mysqlDeadlock, mysqlRolledBackAtCommit:
		return true
	}
	state := sqlState(err)
	if len(state) != 5 || state == "40003" {
		return false
	}
	switch state[:2] {
	case "23", "25", "40", "P0":
		return true
	}
	return false
}
