package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// A Moment is how far a joined request had come when its transaction failed.
type Moment uint8

const (
	AtClaim      Moment = iota // the handler has not run
	AtSettlement               // it has, and COMMIT was not sent
	AtCommit                   // COMMIT was sent
)

// Fault returns the error of a joined transaction as its caller gets it. Code
// and moment say whose fault it is: that of the database before the handler has
// run, and afterwards the handler's, unless database or connection failed.
func Fault(ctx context.Context, doing string, at Moment, err error) error {
	fault := faultOf(at, err)
	if fault == idem.ErrBroken && ctx.Err() != nil {
		fault = idem.ErrCommitUnknown // the end of the time may have cancelled it
	}
	if fault == nil || at == AtClaim || fault == idem.ErrCommitUnknown && at != AtCommit {
		return CallError(ctx, doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, fault, err)
}

// Refused reports whether an error proves that a transaction was not committed,
// also one of its COMMIT.
func Refused(err error) bool { return faultOf(AtCommit, err) != idem.ErrCommitUnknown }

// faults are codes or their classes: of the server, which may have committed, of
// what was written, and of a transaction that another one, or the end of an idle
// session, has taken back: there the next try may succeed. SQLSTATEs of Postgres
// that are not here are the statement's fault, and said before it commits.
var faults = map[string]error{
	"08": idem.ErrCommitUnknown, "40003": idem.ErrCommitUnknown, "53": idem.ErrCommitUnknown,
	"57": idem.ErrCommitUnknown, "58": idem.ErrCommitUnknown, "F0": idem.ErrCommitUnknown, "XX": idem.ErrCommitUnknown,
	"57014": idem.ErrBroken,                                  // a time limit, which a handler may set
	"23":    idem.ErrConstraint, "P0001": idem.ErrConstraint, // the second by a trigger that was deferred
	"25P03": nil, "25P04": nil, "40": nil, "55P03": nil,
}

// faultOf reads the SQLSTATE of Postgres, the number of MySQL, or the text of
// SQLite, which is the same whichever driver passes it on. It returns nil where
// nothing stands and nobody is at fault.
func faultOf(at Moment, err error) error {
	if err == nil {
		return nil
	}
	switch state, number := SQLState(err), sqlschema.MySQLNumber(err); {
	case len(state) == 5:
		if fault, known := faults[state]; known {
			return fault
		}
		if fault, known := faults[state[:2]]; known {
			return fault
		}
		return idem.ErrBroken
	case number == sqlschema.MySQLDeadlock, number == 3101: // the second at COMMIT, of a node of a cluster
		return nil
	case slices.Contains(mysqlStatement, number) && at != AtCommit: // where MySQL checks nothing more
		return idem.ErrBroken
	case state == "" && number == 0 && strings.Contains(err.Error(), "constraint failed"):
		return idem.ErrConstraint
	case state == "" && number == 0 && strings.Contains(err.Error(), "readonly database"):
		return idem.ErrBroken
	}
	return idem.ErrCommitUnknown
}

// mysqlStatement are numbers for LOCK TABLES, rights, READ ONLY and time limits.
var mysqlStatement = []int{1099, 1100, 1142, 1143, 1792, 1969, 3024}
