package claims

import "errors"

// ErrOvertaken means that a row changed between two looks at it.
var ErrOvertaken = errors.New("another request was quicker")

// Again reports whether the same statement may succeed now. In Postgres a
// statement outside a transaction can fail to serialize when the server's
// default isolation is higher than READ COMMITTED.
func Again(err error) bool { return err == ErrOvertaken || SQLState(err) == "40001" }

// SQLState returns the SQLSTATE of an error that the server sent, or "". The
// drivers of Postgres have it by this method.
func SQLState(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// Refused reports whether the answer to a COMMIT proves that the transaction
// was rolled back. What the server says before it has committed does: a
// constraint or a trigger that was deferred, a transaction that had failed or
// that cannot be serialized. All else, and 40003, may have come after.
func Refused(err error) bool {
	state := SQLState(err)
	if len(state) != 5 || state == "40003" {
		return false
	}
	switch state[:2] {
	case "23", "25", "40", "P0":
		return true
	}
	return false
}
