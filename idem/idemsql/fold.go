package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

const (
	// foldSize is how many charges a transaction adds up at most.
	foldSize     = 500
	foldInterval = time.Second

	// One process at a time adds up: the row is its lock. So charges get their
	// numbers in the order of the commits, and a reader misses none. An account
	// of '' has on day 0 the last number, and on day 1 that charges are kept.
	fold = "UPDATE sallyport_used SET units = units WHERE account = $1 AND day = 0"
	// In Postgres it does not outlive a machine that vanishes.
	postgresFold = fold + " AND set_config('idle_in_transaction_session_timeout', '1min', true) IS NOT NULL"
	folded       = `
		SELECT max(CASE WHEN day = 0 THEN units ELSE 0 END), max(CASE WHEN day = 1 THEN 1 ELSE 0 END)
		FROM sallyport_used WHERE account = $1 AND day <= 1`

	// Lists stand in the text in place of {rows}: their lengths vary, and each
	// length would be another statement to prepare.
	added = "UPDATE sallyport_idem SET account = NULL WHERE request_key IN ({rows})"
	add   = `
		INSERT INTO sallyport_used AS u (account, day, units) VALUES {rows}
		ON CONFLICT (account, day) DO UPDATE SET units = u.units + excluded.units`
	mysqlAdd = `
		INSERT INTO sallyport_used (account, day, units) VALUES {rows}
		ON DUPLICATE KEY UPDATE units = units + VALUES(units)`
	keep = "INSERT INTO sallyport_usage (number, id, account, units, began, uncertain) VALUES {rows}"
)

// foldAll adds up all charges that are final, and returns how many.
func (s *Store) foldAll(ctx context.Context) (all int, err error) {
	for n := foldSize; n == foldSize && err == nil; all += n {
		n, err = s.foldSome(ctx)
	}
	return all, err
}

// foldSome adds up charges that are final, in one transaction, and returns how
// many. When it returns foldSize there may be more.
func (s *Store) foldSome(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	return await(ctx, s, "add up", func(ctx context.Context, q querier) (n int, err error) {
		if !s.options.KeepCharges || s.marked.Load() { // nothing is written unless there is something to add up
			some, err := s.charged(ctx, q, s.due, 1)
			if err != nil || len(some) == 0 {
				return 0, err
			}
		}
		conn, own := q.(*sql.Conn)
		var o sql.TxOptions
		if !own { // and not SQLite
			if conn, err = s.db.Conn(ctx); err != nil {
				return 0, err
			}
			defer conn.Close()
			o.Isolation = sql.LevelReadCommitted // who has waited for the lock sees what the last one has done
		}
		tx, err := conn.BeginTx(ctx, &o)
		if err != nil {
			return 0, err
		}
		if n, err = s.foldIn(ctx, tx); err == nil {
			err = tx.Commit()
		}
		if err == nil {
			s.marked.Store(s.options.KeepCharges)
			return n, nil
		}
		if tx.Rollback() != nil { // also after a COMMIT that failed, which may have left it open
			discard(conn)
		}
		return 0, err
	}, nil)
}

// A total is what an account has used on a day.
type total struct {
	account idem.Account
	day     int64
}

// foldIn adds up in a transaction. The charges that it finds are nobody else's:
// claims and settlements leave rows alone whose charge is final.
func (s *Store) foldIn(ctx context.Context, q querier) (n int, err error) {
	if _, err := s.exec(ctx, q, s.fold, []byte{}); err != nil {
		return 0, err
	}
	var number int64
	var kept bool
	if err := s.one(ctx, q, folded, []any{&number, &kept}, []byte{}); err != nil {
		return 0, err
	}
	statement := s.due
	if !s.oneWriter {
		statement += " FOR UPDATE SKIP LOCKED"
	}
	rows, err := s.charged(ctx, q, statement, foldSize)
	if err != nil {
		return 0, err
	}
	totals := make(map[total]int64)
	if s.options.KeepCharges && !kept {
		kept, totals[total{"", 1}] = true, 1
	}
	var keys, charges, sums []string
	for _, r := range rows {
		keys = append(keys, s.bytes(r.Key))
		c := r.Charge()
		if c.Units == 0 {
			continue
		}
		for _, a := range c.Account.Within() {
			totals[total{a, claims.Day(c.Began)}] += c.Units
		}
		if kept {
			totals[total{"", 0}]++
			uncertain := 0
			if c.Uncertain {
				uncertain = 1
			}
			id, _ := hex.DecodeString(c.ID)
			charges = append(charges, fmt.Sprintf("(%d, %s, %s, %d, %d, %d)", number+totals[total{"", 0}],
				s.bytes(id), s.bytes([]byte(c.Account)), c.Units, c.Began.UnixMicro(), uncertain))
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(totals), func(a, b total) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.day, b.day))
	}) {
		sums = append(sums, fmt.Sprintf("(%s, %d, %d)", s.bytes([]byte(t.account)), t.day, totals[t]))
	}
	for _, write := range []struct {
		statement string
		rows      []string
	}{{added, keys}, {s.add, sums}, {keep, charges}} {
		for some := range slices.Chunk(write.rows, 2*foldSize) {
			text, _ := s.sql(write.statement, nil)
			if _, err := q.ExecContext(ctx, strings.Replace(text, "{rows}", strings.Join(some, ", "), 1)); err != nil {
				return 0, err
			}
		}
	}
	return len(rows), nil
}

// bytes returns bytes as they stand in a statement.
func (s *Store) bytes(b []byte) string { return fmt.Sprintf(s.hex, b) }
