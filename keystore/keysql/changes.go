package keysql

import (
	"context"
	"encoding/json"

	"github.com/sallyport-go/sallyport/keystore"
)

// A change is numbered before it can be seen, and so is a new key: in Postgres
// by the id of the transaction, so that numbers become visible in another order
// than that in which they are given out. The horizon is the number below which
// nothing can become visible any more. A reader names all changes from the last
// horizon on, also those above the present one, and starts the next round at
// the horizon that held when this one began. It names some changes twice and
// misses none, whatever else is still running in the database.
//
// Numbers from the latest on belong to another database: rows that were
// restored from a dump keep the numbers of the server they were changed on.
//
// A replica that is promoted goes on from an earlier number than its primary
// may have reached, and so may a server that has crashed, without its last
// unflushed commits. So a position names the start of the server. Its timeline
// would be less, and Amazon Aurora refuses to name it.
const (
	postgresHorizon = `SELECT
		pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS latest,
		CASE WHEN pg_is_in_recovery() THEN '' ELSE
			(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text END AS server`

	// SQLite has one writer at a time, so every number given out is visible.
	sqliteHorizon = `SELECT number + 1 AS horizon, number + 1 AS latest, '' AS server FROM sallyport_keys_changes`

	// In MySQL the row of the counter is locked by a transaction that has
	// changed or inserted a key, and the next waits for its end. But one
	// snapshot may have the change of the next and not its own: MariaDB
	// collects the running transactions one by one, while they end. So the
	// counter is read first, by a statement of its own: any later snapshot has
	// all that it counts.
	mysqlCounter = `SELECT number + 1 FROM sallyport_keys_changes`
	mysqlHorizon = `SELECT CAST(?4 AS SIGNED) AS horizon, CAST(?4 AS SIGNED) AS latest, '' AS server`

	// The comparison of changed alone lets Postgres use the partial index.
	changesAfter = ` SELECT h.horizon, h.latest, h.server, c.changed, c.digest
		FROM h LEFT JOIN (
			SELECT changed, digest FROM sallyport_keys
			WHERE changed >= ?1 AND (changed, digest) > (?1, ?2) AND changed < (SELECT latest FROM h)
			ORDER BY changed, digest LIMIT ?3
		) AS c ON true
		ORDER BY c.changed, c.digest`
)

// changesPage is how many changes one call returns at most.
const changesPage = 1000

// A position is how far a reader of the feed has come: to a horizon between two
// rounds, to a row within a round.
type position struct {
	Changed int64  `json:"changed"`
	Digest  []byte `json:"digest,omitempty"`  // empty between rounds
	Horizon int64  `json:"horizon,omitempty"` // where the next round starts; 0 between rounds

	Server string `json:"server,omitempty"` // of Postgres: when it was started
}

// Changes implements [issuing.Store]. One call returns 1000 digests at most.
//
// In Postgres a transaction that has written and stays open, in any database of
// the server, makes each round name all changes and new keys since it began
// again; caches then ask for those keys more often than they would have to.
func (s *Store) Changes(ctx context.Context, since string) (changed []keystore.Digest, next string, err error) {
	// Not nil, which would be NULL: a text that every digest comes after.
	at, limit := position{Digest: []byte{}}, 0
	if since != "" {
		limit = changesPage
		if json.Unmarshal([]byte(since), &at) != nil || at.Digest == nil {
			return nil, "", keystore.ErrNotFound
		}
	}
	args := []any{at.Changed, at.Digest, limit}
	if s.counter != "" {
		var number int64
		if err := s.queryRow(ctx, s.counter).Scan(&number); err != nil {
			return nil, "", failed(ctx, "changes", err)
		}
		args = append(args, number)
	}
	var horizon, latest int64
	var server string
	var number *int64
	var d []byte
	err = s.each(ctx, "changes", statement{"WITH h AS (" + s.horizon + ")" + changesAfter, args},
		[]any{&horizon, &latest, &server, &number, &d}, func() {
			if number != nil { // else the row of the horizon, without a change
				at.Changed, at.Digest = *number, d
				changed = append(changed, keystore.Digest{})
				copy(changed[len(changed)-1][:], d)
			}
		})
	if err != nil {
		return nil, "", err
	}
	if at.Changed > latest || since != "" && at.Server != server {
		return nil, "", keystore.ErrNotFound
	}
	// A round that needs more than one page ends with an empty one, so that its
	// reader sees an end also where the next round starts at the same place.
	single := at.Horizon == 0 && len(changed) < changesPage
	if at.Horizon == 0 {
		at.Horizon = horizon
	}
	if single || len(changed) == 0 {
		at = position{Changed: at.Horizon}
	}
	at.Server = server
	text, err := json.Marshal(at)
	return changed, string(text), err
}
