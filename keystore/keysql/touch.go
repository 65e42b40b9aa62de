package keysql

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
)

// The uses of a batch travel as one JSON array, so that the statement is the
// same for any number of them and their number has no limit.
const (
	// Rows are locked in the order of their ids. Two servers that touched the
	// same keys in different orders would each wait for the other. A row that
	// somebody else has touched meanwhile is compared again when it is locked.
	postgresTouch = `
		UPDATE sallyport_keys AS k SET last_used_at = l.at
		FROM (
			SELECT k.id, u.at
			FROM sallyport_keys AS k
			JOIN (
				SELECT organization, id, max(at) AS at
				FROM json_to_recordset(?1::json) AS u(organization text, id text, at timestamptz)
				GROUP BY organization, id
			) AS u ON k.id = u.id AND k.organization = u.organization
			WHERE k.last_used_at IS NULL OR k.last_used_at < u.at
			ORDER BY k.id
			FOR NO KEY UPDATE OF k
		) AS l
		WHERE k.id = l.id`

	sqliteTouch = `
		UPDATE sallyport_keys AS k SET last_used_at = u.at
		FROM (
			SELECT value ->> 'organization' AS organization, value ->> 'id' AS id, max(value ->> 'at') AS at
			FROM json_each(?1)
			GROUP BY 1, 2
		) AS u
		WHERE k.id = u.id AND k.organization = u.organization AND (k.last_used_at IS NULL OR k.last_used_at < u.at)`
)

// MySQL locks keys in the order of the batch, which is that of their ids, and
// changes each once. The texts of the batch are hexadecimal, so that the
// connection's character set does not matter.
const mysqlTouch = `
	UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (
			organization VARCHAR(2048) PATH '$.organization',
			id VARCHAR(2048) PATH '$.id',
			at BIGINT PATH '$.at'
		)) AS u
	STRAIGHT_JOIN sallyport_keys AS k ON k.id = UNHEX(u.id) AND k.organization = UNHEX(u.organization)
	SET k.last_used_at = u.at
	WHERE k.last_used_at IS NULL OR k.last_used_at < u.at`

// Touch implements [keystore.Toucher], with one statement for all uses.
func (s *Store) Touch(ctx context.Context, uses []keystore.Use) error {
	type use struct {
		Organization string `json:"organization"`
		ID           string `json:"id"`
		At           any    `json:"at"`
	}
	batch := make([]use, 0, len(uses))
	for _, u := range latest(uses) {
		if isText(u.Organization, u.ID) && !s.tooLong(u.Organization, u.ID) {
			batch = append(batch, use{s.jsonText(u.Organization), s.jsonText(u.ID), s.time(u.At)})
		}
	}
	if len(batch) == 0 {
		return nil
	}
	text, err := json.Marshal(batch)
	if err != nil {
		return fmt.Errorf("keysql: touch: %w", err)
	}
	_, err = s.exec(ctx, "touch", s.touch, string(text))
	return err
}

// latest returns the last use of each key, by id.
func latest(uses []keystore.Use) []keystore.Use {
	uses = slices.SortedFunc(slices.Values(uses), func(a, b keystore.Use) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Organization, b.Organization), b.At.Compare(a.At))
	})
	return slices.CompactFunc(uses, func(a, b keystore.Use) bool {
		return a.ID == b.ID && a.Organization == b.Organization
	})
}
