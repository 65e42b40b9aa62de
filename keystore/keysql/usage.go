package keysql

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	oneDay    = 24 * time.Hour
	usageDays = 30
)

// dayOf returns the day of t as it is stored.
func dayOf(t time.Time) int64 { return t.UTC().Truncate(oneDay).Unix() / (24 * 60 * 60) }

func dateOf(day int64) time.Time { return time.Unix(day*24*60*60, 0).UTC() }

// oldestDay returns the first of the days that are kept.
func oldestDay() int64 { return dayOf(time.Now()) - usageDays + 1 }

// Usage implements [issuing.Store]. It reads three tables one after the
// other.
func (s *Store) Usage(ctx context.Context, organization, id string) (*issuing.Usage, error) {
	if !isText(organization, id) {
		return nil, keystore.ErrNotFound
	}
	u := new(issuing.Usage)
	err := s.queryRow(ctx, "SELECT last_used_at, last_used_from, observed_since, refusals FROM sallyport_keys "+
		"WHERE organization = ?1 AND id = ?2", organization, id).
		Scan((*instant)(&u.LastUsedAt), (*address)(&u.LastUsedFrom), (*instant)(&u.ObservedSince), (*refusals)(&u.Refusals))
	if err != nil {
		return nil, failed(ctx, "usage", err)
	}
	var name scope.Name
	var day, requests int64
	scopes := statement{"SELECT scope, day FROM sallyport_keys_scopes WHERE id = ?1", []any{id}}
	err = s.each(ctx, "usage", scopes, []any{&name, &day}, func() {
		if u.Scopes == nil {
			u.Scopes = make(map[scope.Name]time.Time)
		}
		u.Scopes[name] = dateOf(day)
	})
	if err != nil {
		return nil, err
	}
	days := statement{"SELECT day, requests FROM sallyport_keys_days WHERE id = ?1 AND day >= ?2 ORDER BY day DESC",
		[]any{id, oldestDay()}}
	err = s.each(ctx, "usage", days, []any{&day, &requests}, func() {
		u.Days = append(u.Days, issuing.Day{Date: dateOf(day), Requests: requests})
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// An address scans one from any of the databases. NULL is the zero address.
type address netip.Addr

func (a *address) Scan(value any) error {
	var text sql.NullString
	err := text.Scan(value)
	if err == nil { // NULL as well: no text is the zero address
		err = (*netip.Addr)(a).UnmarshalText([]byte(text.String))
	}
	if err != nil {
		return fmt.Errorf("%w: an address came as %.64q", keystore.ErrCorrupt, text.String)
	}
	return nil
}
