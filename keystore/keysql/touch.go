package keysql

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// touch are the statements that write uses. The uses of a batch travel as one
// JSON array, so that a statement is the same for any number of them and their
// number has no limit.
//
// Rows are locked in the order of their ids. Two servers that touched the same
// keys in different orders would each wait for the other.
type touch struct {
	keys   string // when keys were used last, from where, and how they were refused
	scopes string // on which day scopes were needed last
	sweep  string // removes a part of the days before ?1
	days   string // how many requests there were
}

var postgresTouch = touchOf(postgresBatch, locked,
	// A row that somebody else has touched meanwhile is compared again when it
	// is locked.
	`
		FROM (
			SELECT k.id, u.at, u.address, u.observed, u.refused FROM sallyport_keys AS k JOIN`+postgresBatch+`
			ON k.id = u.id AND k.organization = u.organization
			WHERE`+news+`
			ORDER BY k.id
			FOR NO KEY UPDATE OF k
		) AS u
		WHERE k.id = u.id`,
	"COALESCE(k.refusals, '{}') || u.refused::jsonb",
	"FOR UPDATE SKIP LOCKED")

const postgresBatch = `
	json_to_recordset(?1::json) AS u(organization text, id text, at timestamptz, address text,
		observed timestamptz, refused text, scope text, day integer, requests bigint)`

var sqliteTouch = touchOf(sqliteBatch, "",
	" FROM"+sqliteBatch+" WHERE k.id = u.id AND k.organization = u.organization AND"+news,
	"json_patch(COALESCE(k.refusals, '{}'), u.refused)", "")

const sqliteBatch = `
	(
		SELECT value ->> 'organization' AS organization, value ->> 'id' AS id, value ->> 'at' AS at,
			value ->> 'address' AS address, value ->> 'observed' AS observed,
			value ->> 'refused' AS refused, value ->> 'scope' AS scope,
			value ->> 'day' AS day, value ->> 'requests' AS requests
		FROM json_each(?1)
	) AS u`

// touchOf returns the statements of Postgres or SQLite: for a batch, for how its
// keys are locked and found, how a refusal is added to those that are kept, and
// how rows are locked that are removed.
func touchOf(batch, lock, found, refusals, removed string) touch {
	const ofKeys = `
		JOIN sallyport_keys AS k ON k.id = u.id AND k.organization = u.organization`
	return touch{
		keys: "UPDATE sallyport_keys AS k SET" + usedLater(refusals) + found,
		// Most scopes were needed before on the same day. They are left out,
		// because a row that is in conflict is locked, and that is a write.
		scopes: `
			INSERT INTO sallyport_keys_scopes AS s (id, scope, day)
			SELECT k.id, u.scope, u.day FROM` + batch + ofKeys + `
			WHERE NOT EXISTS (
				SELECT 1 FROM sallyport_keys_scopes AS o WHERE o.id = k.id AND o.scope = u.scope AND o.day >= u.day)
			ORDER BY 1, 2` + lock + `
			ON CONFLICT (id, scope) DO UPDATE SET day = excluded.day WHERE s.day < excluded.day`,
		days: `
			INSERT INTO sallyport_keys_days AS d (id, day, requests)
			SELECT k.id, u.day, u.requests FROM` + batch + ofKeys + `
			WHERE true
			ORDER BY 1, 2` + lock + `
			ON CONFLICT (id, day) DO UPDATE SET requests = d.requests + excluded.requests`,
		sweep: `
			DELETE FROM sallyport_keys_days WHERE (id, day) IN (
				SELECT id, day FROM sallyport_keys_days WHERE day < ?1 ORDER BY day LIMIT 1000 ` + removed + ")",
	}
}

// usedLater changes a key, whose refusals are then those, or NULL for the same.
// MySQL may assign the time before it compares it for the address.
func usedLater(refusals string) string {
	return `
		last_used_from = CASE WHEN u.at >= COALESCE(k.last_used_at, u.at) THEN u.address ELSE k.last_used_from END,
		last_used_at = CASE WHEN u.at >= COALESCE(k.last_used_at, u.at) THEN u.at ELSE k.last_used_at END,
		observed_since = COALESCE(k.observed_since, u.observed),
		refusals = COALESCE(` + refusals + `, k.refusals)`
}

const (
	news = ` (k.last_used_at IS NULL OR k.last_used_at < u.at OR k.observed_since IS NULL AND u.observed IS NOT NULL OR
		u.refused IS NOT NULL)`

	// An erasure locks its keys first, too.
	locked = " FOR KEY SHARE OF k"
)

// MySQL locks keys in the order of the batch, which is that of their ids. The
// texts of the batch are hexadecimal, so that the connection's character set
// does not matter.
var mysqlTouch = touch{
	keys: "UPDATE" + mysqlBatch + " SET" +
		usedLater(`CONVERT(JSON_MERGE_PATCH(COALESCE(CONVERT(k.refusals USING utf8mb4), '{}'),
			CONVERT(UNHEX(u.refused) USING utf8mb4)) USING utf8mb4)`) + " WHERE" + news,
	scopes: `
		INSERT INTO sallyport_keys_scopes (id, scope, day) SELECT k.id, UNHEX(u.scope), u.day FROM` + mysqlBatch + `
		WHERE NOT EXISTS (
			SELECT 1 FROM sallyport_keys_scopes AS o WHERE o.id = k.id AND o.scope = UNHEX(u.scope) AND o.day >= u.day)
		ON DUPLICATE KEY UPDATE day = GREATEST(sallyport_keys_scopes.day, u.day)`,
	days: `
		INSERT INTO sallyport_keys_days (id, day, requests) SELECT k.id, u.day, u.requests FROM` + mysqlBatch + `
		ON DUPLICATE KEY UPDATE requests = sallyport_keys_days.requests + u.requests`,
	sweep: "DELETE FROM sallyport_keys_days WHERE day < ?1 ORDER BY day LIMIT 1000",
}

const mysqlBatch = `
	JSON_TABLE(?1, '$[*]' COLUMNS (
			organization VARCHAR(2048) PATH '$.organization',
			id VARCHAR(2048) PATH '$.id',
			at BIGINT PATH '$.at',
			address VARCHAR(64) PATH '$.address',
			observed BIGINT PATH '$.observed',
			refused VARCHAR(4096) PATH '$.refused',
			scope VARCHAR(2048) PATH '$.scope',
			day INTEGER PATH '$.day',
			requests BIGINT PATH '$.requests'
		)) AS u
	STRAIGHT_JOIN sallyport_keys AS k ON k.id = UNHEX(u.id) AND k.organization = UNHEX(u.organization)`

// used is one row of a batch.
type used struct {
	Organization string `json:"organization"`
	ID           string `json:"id"`

	// Of a key.
	At       any     `json:"at,omitempty"`
	Address  *string `json:"address,omitempty"`
	Observed any     `json:"observed,omitempty"`
	Refused  string  `json:"refused,omitempty"`

	// Of a scope or of a day.
	Scope    string `json:"scope,omitempty"`
	Day      int64  `json:"day"`
	Requests int64  `json:"requests"`

	at time.Time
}

// place is what there is one row of a batch for.
type place struct {
	id, organization, scope string
	day                     int64
}

// AddUses implements [issuing.Store], with four statements for all uses. The
// one that adds requests is the last.
func (s *Store) AddUses(ctx context.Context, uses []keystore.Use) error {
	keys, scopes, days := s.batches(uses)
	if err := s.writeUses(ctx, s.touch.keys, keys); err != nil {
		return err
	}
	if err := s.writeUses(ctx, s.touch.scopes, scopes); err != nil || len(days) == 0 {
		return err
	}
	if _, err := s.exec(ctx, "sweep", s.touch.sweep, oldestDay()); err != nil {
		return err
	}
	return s.writeUses(ctx, s.touch.days, days)
}

func (s *Store) writeUses(ctx context.Context, statement string, batch map[place]*used) error {
	if len(batch) == 0 {
		return nil
	}
	text, err := json.Marshal(slices.SortedFunc(maps.Values(batch), func(a, b *used) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Day, b.Day))
	}))
	if err != nil {
		return fmt.Errorf("keysql: touch: %w", err)
	}
	_, err = s.exec(ctx, "touch", statement, string(text))
	return err
}

// batches returns the rows of the uses that a key can have.
func (s *Store) batches(uses []keystore.Use) (keys, scopes, days map[place]*used) {
	keys, scopes, days = make(map[place]*used), make(map[place]*used), make(map[place]*used)
	row := func(batch map[place]*used, p place) *used {
		if batch[p] == nil {
			organization, id, scope := s.jsonText(p.organization), s.jsonText(p.id), s.jsonText(p.scope)
			batch[p] = &used{Organization: organization, ID: id, Scope: scope, Day: p.day}
		}
		return batch[p]
	}
	for _, u := range uses {
		if !isText(u.Organization, u.ID) || s.tooLong(u.Organization, u.ID) {
			continue
		}
		key := row(keys, place{id: u.ID, organization: u.Organization})
		refused := map[string]keystore.Refusal{u.Refused.Code: u.Refused}
		if text, err := json.Marshal(refused); err == nil && u.Refused.Code != "" &&
			isText(u.Refused.Code, u.Refused.Route) {
			key.Refused = s.jsonText(string(text))
		}
		if !u.At.IsZero() && (key.At == nil || u.At.After(key.at)) {
			key.at, key.At, key.Address = u.At, s.time(u.At), nil
			if u.From.IsValid() {
				text := u.From.WithZone("").String()
				key.Address = &text
			}
		}
		day := dayOf(u.At)
		for _, n := range u.Scopes {
			if !isText(string(n)) || s.tooLong(string(n)) {
				continue
			}
			scope := row(scopes, place{id: u.ID, organization: u.Organization, scope: string(n)})
			scope.Day = max(scope.Day, day)
		}
		if u.Requests != 0 {
			key.Observed = cmp.Or(key.Observed, s.time(u.At))
			row(days, place{id: u.ID, organization: u.Organization, day: day}).Requests += u.Requests
		}
	}
	return keys, scopes, days
}
