package sqlschema_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// mysqlError is as that of github.com/go-sql-driver/mysql.
type mysqlError struct {
	Number  uint16
	Message string
}

func (e *mysqlError) Error() string { return e.Message }

func TestMySQLNumber(t *testing.T) {
	type text struct{ error }
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"nil":            {nil, 0},
		"a driver's":     {&mysqlError{Number: 1062}, 1062},
		"wrapped":        {fmt.Errorf("idemsql: %w", &mysqlError{Number: 1213}), 1213},
		"a nil pointer":  {(*mysqlError)(nil), 0},
		"another's":      {errors.New("Error 1062"), 0},
		"embedded, none": {text{}, 0},
	} {
		if got := sqlschema.MySQLNumber(row.err); got != row.want {
			t.Errorf("%s: got %d, want %d", name, got, row.want)
		}
	}
}
