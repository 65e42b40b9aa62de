package keysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const (
	entryColumns = "id, organization, key_id, at, act, actor, reason, changes"

	// selectEntries has the names of keys that are not of another organization:
	// one may have taken the id of a key that is gone.
	selectEntries = "SELECT a.id, a.organization, key_id, at, act, actor, reason, changes, COALESCE(name, ''), " +
		"COALESCE(hint, '') FROM sallyport_keys_audit AS a%s LEFT JOIN sallyport_keys AS k ON k.id = key_id AND " +
		"k.organization = a.organization WHERE 1 = 1"

	// sweepBatch is how many rows one statement of a sweep deletes.
	sweepBatch = 1000

	// erasedFor is how long the digest of an erased key stays, so that a cache
	// which asks the feed now and then has learnt of it.
	erasedFor = time.Hour

	// childKept is how long a child stays after its end or revocation. A request
	// is repeated for a day, and then its issue token still finds the child.
	childKept = 24 * time.Hour
)

// Insert implements [issuing.Store]. With maxKeys it waits for other calls for
// the organization, in SQLite and MySQL for all writers. It returns an error,
// and stores nothing, when a text of k or e is not UTF-8 or has a NUL byte, when
// a network of k is none, and in MySQL when an identifier is longer than 512
// bytes.
func (s *Store) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	insert, err := s.inserting(k)
	if err != nil {
		return err
	}
	entry, err := s.entering("insert", e)
	if err != nil {
		return err
	}
	left := statement{"DELETE FROM sallyport_keys WHERE digest = ?1 AND " + s.erased(), []any{digestBytes(k)}}
	add := func(replace bool) (int64, error) {
		return s.audited(ctx, "insert", entry, func(tx *sql.Tx) (rows int64, err error) {
			if maxKeys > 0 {
				err = s.room(ctx, tx, k, maxKeys)
			}
			var gone int64
			if err == nil && replace {
				gone, err = s.execOn(ctx, tx, left)
			}
			if err == nil {
				rows, err = s.execOn(ctx, tx, insert)
			}
			if err == nil && rows < gone {
				err = issuing.ErrExists // so that what was left stays
			}
			return rows, err
		})
	}
	stored, err := add(false)
	if err == nil && stored == 0 {
		stored, err = add(true) // in the place of what an erasure has left: the feed names the new key
	}
	if err != nil || stored == 1 {
		return err
	}
	return s.conflict(ctx, k)
}

// erased is the condition of what Erase leaves of a key.
func (s *Store) erased() string { return "organization = '' AND id = " + s.erasedID }

// liveKeys and liveBelow count the keys of the organization, or below the key, ?1
// at ?2, but no more than ?3. Each part is a range of an index: thousands may
// have ended.
const (
	liveKeys = "SELECT (" + countLive + "organization = ?1 AND parent = '' AND expires_at > ?2 LIMIT ?3) AS e) + (" +
		countLive + "organization = ?1 AND parent = '' AND expires_at IS NULL LIMIT ?3) AS n)"
	liveBelow = countLive + "root = ?1 AND root <> '' AND expires_at > ?2 LIMIT ?3) AS e"
	countLive = "SELECT count(*) FROM (SELECT 1 FROM sallyport_keys WHERE revoked_at IS NULL AND "
)

// room returns [issuing.ErrTooManyKeys] if there may be no other key without a
// parent, or below the same one as k. Until the transaction ends no other call
// counts the keys of the organization.
func (s *Store) room(ctx context.Context, tx *sql.Tx, k *keystore.Key, maxKeys int) error {
	if _, err := s.execOn(ctx, tx, statement{s.lock, []any{k.Organization}}); err != nil {
		return err
	}
	live, of := liveKeys, k.Organization
	if k.Parent != "" {
		live, of = liveBelow, rootOf(k)
	}
	query, args := s.sql(live, []any{of, s.time(time.Now()), maxKeys})
	var keys int
	if err := tx.QueryRowContext(ctx, query, args...).Scan(&keys); err != nil {
		return err
	}
	if keys >= maxKeys {
		return issuing.ErrTooManyKeys
	}
	return nil
}

// Update implements [issuing.Store]. It returns an error, and changes nothing,
// when the name, a scope or an attribute of k, or a text of e, is not UTF-8 or
// has a NUL byte, or a network of k is none.
func (s *Store) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	if !isText(k.Organization, k.ID) {
		return keystore.ErrNotFound
	}
	changing := keystore.Key{Name: k.Name, Scopes: k.Scopes, Attributes: k.Attributes, Networks: k.Networks}
	if err := s.checkFields(&changing); err != nil {
		return err
	}
	entry, err := s.entering("update", e)
	if err != nil {
		return err
	}
	// The trigger of the schema would raise the version by itself; a statement
	// that says so can be understood without it.
	update := statement{
		`UPDATE sallyport_keys
		SET name = ?1, scopes = ?2, expires_at = ?3, revoked_at = ?4, suspended = ?5, attributes = ?10, networks = ?11,
			version = version + 1
		WHERE organization = ?6 AND id = ?7 AND digest = ?8 AND version = ?9`,
		[]any{
			k.Name, asJSON(k.Scopes, "[]"), s.optional(k.ExpiresAt), s.optional(k.RevokedAt), k.Suspended,
			k.Organization, k.ID, digestBytes(k), k.Version, asJSON(k.Attributes, "{}"), asJSON(k.Networks, "[]"),
		}}
	changed, err := s.audited(ctx, "update", entry, func(tx *sql.Tx) (int64, error) { return s.execOn(ctx, tx, update) })
	if err != nil || changed == 1 {
		return err
	}
	// The organization, id and digest of a key never change, so a second
	// statement can still tell why.
	stored, err := s.Find(ctx, k.Organization, k.ID)
	if err == nil && stored.Digest != k.Digest {
		err = keystore.ErrNotFound
	}
	return cmp.Or(err, issuing.ErrConflict)
}

// entering returns the statement that stores e, or what is wrong with e.
func (s *Store) entering(doing string, e issuing.AuditEntry) (statement, error) {
	changes := asJSON(e.Changes, "[]")
	if texts := []string{e.ID, e.Organization, e.Key, e.Act, e.Actor, e.Reason}; !isText(append(texts, changes)...) ||
		s.tooLong(texts...) {
		return statement{}, fmt.Errorf(
			"keysql: %s: a text of the entry is too long, or not UTF-8 text without NUL bytes", doing)
	}
	return statement{"INSERT INTO sallyport_keys_audit (" + entryColumns +
		") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
		[]any{e.ID, e.Organization, e.Key, s.time(e.At), e.Act, e.Actor, e.Reason, changes}}, nil
}

// audited does an act and stores its entry, in one transaction. It does neither
// if the act wrote no row.
func (s *Store) audited(
	ctx context.Context, doing string, entry statement, act func(*sql.Tx) (int64, error),
) (rows int64, err error) {
	return s.inTx(ctx, doing, func(tx *sql.Tx) (int64, error) {
		rows, err := act(tx)
		if err == nil && rows > 0 {
			_, err = s.execOn(ctx, tx, entry)
		}
		return rows, err
	})
}

// inTx commits what do does, or nothing when that fails.
func (s *Store) inTx(ctx context.Context, doing string, do func(*sql.Tx) (int64, error)) (rows int64, err error) {
	return s.run(ctx, doing, func() (int64, error) {
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.isolation})
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		rows, err := do(tx)
		if err == nil {
			err = tx.Commit()
		}
		return rows, err
	})
}

// Audit implements [issuing.Store]. It reads the entries of the days that are
// asked for, the newest first, until the page is full: with an Act or an Actor
// that few have it reads all of the organization, and with AllOrganizations and
// a Key those of each organization.
func (s *Store) Audit(
	ctx context.Context, organization string, q issuing.AuditQuery,
) (page []issuing.AuditEntry, err error) {
	if !isText(organization, q.Key, q.Act, q.Actor, q.After) {
		return nil, nil
	}
	entries := statement{query: fmt.Sprintf(selectEntries, map[bool]string{false: s.ofAudit}[q.AllOrganizations])}
	from, below, limit := q.Bounds()
	entries.where(!q.AllOrganizations, " AND a.organization = ?", organization)
	entries.where(q.Key != "", " AND key_id = ?", q.Key)
	entries.where(q.Act != "", " AND act = ?", q.Act)
	entries.where(q.Actor != "", " AND actor = ?", q.Actor)
	entries.where(from != "", " AND a.id >= ?", from)
	entries.where(below != "", " AND a.id < ?", below)
	entries.query += fmt.Sprint(" ORDER BY a.id DESC LIMIT ", limit)
	var e issuing.AuditEntry
	fields := []any{&e.ID, &e.Organization, &e.Key, (*instant)(&e.At), &e.Act, &e.Actor, &e.Reason,
		fromJSON[[]issuing.Change]{&e.Changes}, &e.KeyName, &e.KeyHint}
	err = s.each(ctx, "audit", entries, fields, func() { page = append(page, e) })
	if err != nil {
		return nil, err
	}
	return page, nil
}

// SweepAudit implements [issuing.Store]. It deletes 1000 entries or children
// at a time, and also what [Store.Erase] has left behind for an hour.
func (s *Store) SweepAudit(ctx context.Context, before time.Time) (removed int, err error) {
	for _, old := range []struct {
		table, condition, column string
		before                   time.Time
	}{
		{"sallyport_keys", s.erased() + " AND", "revoked_at", time.Now().Add(-erasedFor)},
		{"sallyport_keys", "parent <> '' AND", s.ends, time.Now().Add(-childKept)},
		{"sallyport_keys_audit", "", "at", before},
	} {
		removed = 0 // of the last table, the audit
		batch := fmt.Sprintf(s.batch, old.table, old.condition, old.column, sweepBatch)
		for full := true; full; {
			rows, err := s.exec(ctx, "sweep", batch, s.time(old.before))
			if removed += int(rows); err != nil {
				return removed, err
			}
			full = rows == sweepBatch
		}
	}
	return removed, nil
}

// Erase implements [issuing.Store]. For an hour, and until the next
// [Store.SweepAudit], it leaves the digest and the environment of each key,
// revoked, so that the feed names it to caches of any version. A key with that
// digest takes its place.
func (s *Store) Erase(
	ctx context.Context, organization string, entry func(keys, entries int) issuing.AuditEntry,
) (keys, entries int, err error) {
	if organization == "" || !isText(organization) {
		return 0, 0, nil
	}
	ofKeys := "WHERE id IN (SELECT id FROM sallyport_keys WHERE organization = ?1)"
	statements := []statement{
		{"DELETE FROM sallyport_keys_scopes " + ofKeys, []any{organization}},
		{"DELETE FROM sallyport_keys_days " + ofKeys, []any{organization}},
		{`UPDATE sallyport_keys SET id = ` + s.erasedID + `, organization = '', name = '', hint = '',
			scopes = '[]', created_at = ?2, created_by = '', expires_at = NULL, revoked_at = ?2,
			suspended = FALSE, last_used_at = NULL, last_used_from = NULL, observed_since = NULL, refusals = NULL,
			issue_token = '', rotated_from = '', attributes = '{}', networks = '[]', version = version + 1,
			root = '', parent = CASE WHEN parent = '' THEN '' ELSE 'erased' END
			WHERE organization = ?1`, []any{organization, s.time(time.Now())}},
		// A key that was inserted since the UPDATE stays, with its entry.
		{`DELETE FROM sallyport_keys_audit WHERE organization = ?1 AND act <> 'erase' AND NOT EXISTS (
			SELECT 1 FROM sallyport_keys AS k WHERE k.id = key_id AND k.organization = ?1)`, []any{organization}},
	}
	if s.lockKeys != "" {
		statements = slices.Insert(statements, 0, statement{s.lockKeys, []any{organization}})
	}
	var counts [2]int64 // of the last two
	_, err = s.inTx(ctx, "erase", func(tx *sql.Tx) (rows int64, err error) {
		for _, st := range statements {
			if rows, err = s.execOn(ctx, tx, st); err != nil {
				return 0, err
			}
			counts[0], counts[1] = counts[1], rows
		}
		if counts == [2]int64{} {
			return 0, nil
		}
		left, err := s.entering("erase", entry(int(counts[0]), int(counts[1])))
		if err == nil {
			_, err = s.execOn(ctx, tx, left)
		}
		return rows, err
	})
	if err != nil {
		return 0, 0, err
	}
	return int(counts[0]), int(counts[1]), nil
}
