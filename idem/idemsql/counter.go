package idemsql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

const (
	charges = `
		SELECT number, id, account, units, began, uncertain FROM sallyport_usage ORDER BY number LIMIT $1`
	acknowledge = "DELETE FROM sallyport_usage WHERE number <= $1"
)

// Count implements [idem.Counter]. The names of an account have 511 bytes at most.
func (s *Store) Count(ctx context.Context, a idem.Account, units int64) error {
	if a == "" || units <= 0 {
		return nil
	}
	if err := claims.CheckAccount(a); err != nil {
		return fmt.Errorf("idemsql: %w", err)
	}
	args := claims.CountArgs(a, units)
	return s.do(ctx, "count", func(ctx context.Context, q querier) error { return s.write(ctx, q, s.count, args...) })
}

// Used implements [idem.Counter]. It is one statement, which reads the sums of the
// days, and the claims that [Store.Run] has not added to them yet.
func (s *Store) Used(ctx context.Context, a idem.Account, since time.Time) (units int64, now time.Time, err error) {
	s.counts.Store(true)
	got, err := await(ctx, s, "used", func(ctx context.Context, q querier) (got [2]int64, err error) {
		return got, s.one(ctx, q, s.used, []any{&got[0], &got[1]}, claims.UsedArgs(a, since)...)
	}, nil)
	if err != nil {
		return 0, time.Time{}, err
	}
	return got[0], time.UnixMicro(got[1]).UTC(), nil
}

// Charges implements [idem.Counter]. There are none unless Options.KeepCharges was
// set when they became final.
func (s *Store) Charges(ctx context.Context, limit int) ([]idem.Charge, error) {
	return await(ctx, s, "charges", func(ctx context.Context, q querier) (all []idem.Charge, err error) {
		err = s.all(ctx, q, func(rows *sql.Rows) error {
			var c idem.Charge
			var id, account []byte
			var began int64
			err := rows.Scan(&c.Number, &id, &account, &c.Units, &began, &c.Uncertain)
			c.ID, c.Account, c.Began = hex.EncodeToString(id), idem.Account(account), time.UnixMicro(began).UTC()
			all = append(all, c)
			return err
		}, charges, max(limit, 0))
		return all, err
	}, nil)
}

// Acknowledge implements [idem.Counter].
func (s *Store) Acknowledge(ctx context.Context, number int64) error {
	return s.do(ctx, "acknowledge", func(ctx context.Context, q querier) error {
		_, err := s.exec(ctx, q, acknowledge, number)
		return err
	})
}

// Uncertain implements [idem.Counter].
func (s *Store) Uncertain(ctx context.Context, limit int) ([]idem.Charge, error) {
	return await(ctx, s, "uncertain", func(ctx context.Context, q querier) ([]idem.Charge, error) {
		rows, err := s.charged(ctx, q, s.uncertain, max(limit, 0))
		var all []idem.Charge
		for _, r := range rows {
			all = append(all, r.Charge())
		}
		return all, err
	}, nil)
}

// charged returns what a statement returns of charges.
func (s *Store) charged(ctx context.Context, q querier, statement string, limit int) (all []claims.Row, err error) {
	err = s.all(ctx, q, func(rows *sql.Rows) error {
		var r claims.Row
		err := rows.Scan(r.Columns()...)
		all = append(all, r)
		return err
	}, statement, limit)
	return all, err
}
