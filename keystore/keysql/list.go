package keysql

import (
	"context"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// The statuses come in the order in which [keystore.Key.Status] reports them.
// A NULL is before nothing.
const (
	listKeys = "SELECT " + columns + ` FROM sallyport_keys
		WHERE organization = ?1
		AND (?2 = '' OR environment = ?2)
		AND (?3 = '' OR ?3 = CASE
			WHEN revoked_at <= ?4 THEN 'revoked'
			WHEN expires_at <= ?4 THEN 'expired'
			WHEN suspended THEN 'suspended'
			ELSE 'active' END)`
	listAfter = " AND (created_at, id) < (?6, ?7)"
	listOrder = " ORDER BY created_at DESC, id DESC LIMIT ?5"
)

// List implements [keystore.Manager].
func (s *Store) List(ctx context.Context, organization string, p keystore.Page) ([]*keystore.Key, error) {
	if !isText(organization, p.After.ID, string(p.Environment), string(p.Status)) {
		return nil, nil
	}
	query, args := listKeys, []any{organization, string(p.Environment), string(p.Status), s.time(time.Now()), p.Size()}
	// Not a condition that the first page switches off with a parameter: the
	// database could no longer start reading the index at the cursor.
	if p.After != (keystore.Cursor{}) {
		query, args = query+listAfter, append(args, s.time(p.After.CreatedAt), p.After.ID)
	}
	rows, err := s.db.QueryContext(ctx, s.sql(query+listOrder), args...)
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
