package keysql

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// statuses are those that a page may ask for. A statement gets the index of one
// in this list and not its text, because MySQL compares two texts that are not
// from a table by the collation of the connection.
var statuses = []keystore.Status{"", keystore.Revoked, keystore.Expired, keystore.Suspended, keystore.Active}

// The order of the statuses is that of [keystore.Key.Status]. A time that is
// NULL is never in the past: the comparison is not true.
const (
	listKeys = "SELECT " + columns + ` FROM sallyport_keys
		WHERE organization = ?1
		AND (length(?2) = 0 OR environment = ?2)
		AND (?3 = 0 OR ?3 = CASE
			WHEN revoked_at <= ?4 THEN 1
			WHEN expires_at <= ?4 THEN 2
			WHEN suspended THEN 3
			ELSE 4 END)`
	listOrder = " ORDER BY created_at DESC, id DESC LIMIT ?5"

	// Each condition is left out unless it is asked for. If a parameter
	// switched the cursor off, the database could not start to read the index
	// there.
	//
	// Written so that MySQL too starts to read the index at the cursor.
	listAfter     = " AND created_at <= ?6 AND (created_at < ?6 OR id < ?7)"
	listExpiring  = " AND expires_at < ?"
	listUnused    = " AND created_at < ? AND (last_used_at IS NULL OR last_used_at < ?)"
	listNeverUsed = " AND last_used_at IS NULL"

	// The second half lets Postgres and SQLite use the index of successors.
	listSuccessor = " AND rotated_from = ? AND rotated_from <> ''"
)

// List implements [issuing.Manager]. It reads the organization's keys from the
// newest on until the page is full: with a condition that few of them meet it
// reads all, 0.1 s for 100,000 keys.
func (s *Store) List(ctx context.Context, organization string, p issuing.Page) ([]*keystore.Key, error) {
	status := slices.Index(statuses, p.Status)
	if status < 0 || !isText(organization, string(p.Environment), p.RotatedFrom) ||
		p.After != nil && !isText(p.After.ID) {
		return nil, nil
	}
	query, args := listKeys, []any{organization, string(p.Environment), status, s.time(time.Now()), p.Size()}
	if p.After != nil {
		query, args = query+listAfter, append(args, s.time(p.After.CreatedAt), p.After.ID)
	}
	where := func(condition string, asked bool, arg any) {
		if asked {
			args = append(args, arg)
			query += strings.ReplaceAll(condition, "?", "?"+strconv.Itoa(len(args)))
		}
	}
	where(listExpiring, !p.ExpiresBefore.IsZero(), s.time(p.ExpiresBefore))
	where(listUnused, !p.UnusedSince.IsZero(), s.time(p.UnusedSince))
	where(listSuccessor, p.RotatedFrom != "", p.RotatedFrom)
	if p.NeverUsed {
		query += listNeverUsed
	}
	rows, err := s.query(ctx, query+listOrder, args...)
	if err != nil {
		return nil, failed(ctx, "list", err)
	}
	defer rows.Close()
	var page []*keystore.Key
	for rows.Next() {
		k, err := scanKey(rows)
		if err != nil {
			return nil, failed(ctx, "list", err)
		}
		page = append(page, k)
	}
	if err := rows.Err(); err != nil {
		return nil, failed(ctx, "list", err)
	}
	return page, nil
}
