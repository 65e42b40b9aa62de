package claims

import (
	"context"
	"errors"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// ErrOvertaken means that a row changed between two looks at it.
var ErrOvertaken = errors.New("another request was quicker")

// Again reports whether the same statement may succeed now. In Postgres a
// statement outside a transaction can fail to serialize when the server's
// default isolation is higher than READ COMMITTED.
func Again(err error) bool {
	return err == ErrOvertaken || SQLState(err) == "40001" || sqlschema.MySQLAgain(err)
}

// SQLState returns the SQLSTATE of an error that the server sent, or "". The
// drivers of Postgres have it by this method.
func SQLState(err error) string {
	if e := (interface{ SQLState() string })(nil); errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// repeated calls do for as long as it may succeed now.
func repeated[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for {
		value, err := do()
		if !Again(err) || ctx.Err() != nil {
			return value, err
		}
	}
}
