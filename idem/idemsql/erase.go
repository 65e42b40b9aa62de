package idemsql

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/claims"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

const (
	eraseSize = 500 // how many rows a statement of Erase looks at
	eraseWait = 100 * time.Millisecond
)

// owned tells of keys whether they are to be erased, and erase removes them:
// InnoDB locks all rows that a DELETE looks at, and a SELECT none.
var (
	owned = `
		SELECT request_key, CASE WHEN substr(token, 1, 8) = $2 THEN 1 ELSE 0 END FROM sallyport_idem
		WHERE request_key > $1 ORDER BY request_key LIMIT ` + strconv.Itoa(eraseSize)
	erase = func() string {
		list := make([]string, eraseSize)
		for i := range list {
			list[i] = "$" + strconv.Itoa(i+2)
		}
		return "DELETE FROM sallyport_idem WHERE substr(token, 1, 8) = $1 AND request_key IN (" +
			strings.Join(list, ", ") + ") AND " + claims.NotDue
	}()
)

// erased is what was done for some of the keys: last is the last of them, and nil
// when there was none. Rows are left whose charge has to be added up before.
type erased struct {
	rows, left int
	last       []byte
}

// Erase implements [idem.Eraser]. It reads the whole table in the order of its
// keys, 500 rows at a time. It waits for a row that a joined request is about to
// replace, and does not see one that is not committed yet.
//
// It adds up what is charged finally before it removes the claims. These sums, and
// the charges that were not acknowledged, stay, with the names of the accounts:
// bills need them. A charge that is uncertain is removed with its claim.
func (s *Store) Erase(ctx context.Context, organization string) (removed int, err error) {
	prefix := token.Prefix(organization)
	for after := []byte{}; after != nil && err == nil; {
		from := after // what a call leaves behind may still read it
		var e erased
		e, err = await(ctx, s, "erase", func(ctx context.Context, q querier) (erased, error) {
			return s.eraseSome(ctx, q, from, prefix[:])
		}, nil)
		removed, after = removed+e.rows, e.last
		if err == nil && e.left > 0 {
			after = from
			var n int
			if n, err = s.foldAll(ctx); n == 0 && err == nil { // a transaction has it
				select {
				case <-ctx.Done():
				case <-time.After(eraseWait):
				}
			}
		}
	}
	return removed, err
}

// eraseSome erases what comes after a key.
func (s *Store) eraseSome(ctx context.Context, q querier, after, prefix []byte) (e erased, err error) {
	args := []any{prefix}
	err = s.all(ctx, q, func(rows *sql.Rows) error {
		var owned bool
		e.last = nil
		err := rows.Scan(&e.last, &owned)
		if owned {
			args = append(args, e.last)
		}
		return err
	}, s.owned, after, prefix)
	if err != nil || len(args) == 1 {
		return e, err
	}
	e.left = len(args) - 1
	for len(args) <= eraseSize {
		args = append(args, args[len(args)-1])
	}
	e.rows, err = s.exec(ctx, q, s.erase, args...)
	e.left -= e.rows
	return e, err
}

// HasTable reports whether the table is there, of whichever version.
func (s *Store) HasTable(ctx context.Context) (bool, error) {
	there, err := s.schema().Has(ctx, s.db)
	return there, claims.CallError(ctx, "idemsql: inspect", err)
}
