package idemsql

import (
	"github.com/sallyport-go/sallyport/idem/idemsql/sqlschema"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

const mysqlRolledBackAtCommit = 3101

// refused reports whether the answer to a COMMIT proves that the transaction
// was rolled back. MySQL sends such an answer as a node of a cluster whose
// transaction met another one.
func refused(err error) bool {
	switch sqlschema.MySQLNumber(err) {
	case sqlschema.MySQLDeadlock, mysqlRolledBackAtCommit:
		return true
	}
	return claims.Refused(err)
}
