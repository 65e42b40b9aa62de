package idemsql

// The statements are written for both databases; a dialect puts its own words
// for what stands in braces: the database's time now, a microsecond, and how
// many of those are left of a lease. States are the numbers of idem.State.
//
// The parameters of the statements that begin are $1 the partition, $2 the
// digest, $3 the token, $4 the fingerprint, $5 whether to take over, $6 the
// lease and $7 the retention, and in Postgres $8 the key's lock. They return
// state, fingerprint, attempt, the lease left and the payload.
const (
	theKey = "r.digest = $2 AND r.partition_hash = $1"

	// claimable says of a row that the claim may have it. It is never NULL.
	claimable = `(r.expires_at <= {now}
		OR r.state = 1 AND r.token = $3
		OR $5 AND r.fingerprint = $4 AND (r.state = 4 OR r.state = 1 AND r.lease_ends <= {now}))`

	peek = `
		SELECT CASE WHEN r.state <> 1 THEN r.state WHEN r.lease_ends > {now} THEN 2 ELSE 4 END,
			r.fingerprint, 0, {left}, r.payload
		FROM sallyport_idem AS r
		WHERE ` + theKey + " AND NOT " + claimable

	// held says of a row that the token holds the claim, or settled it.
	held = theKey + " AND r.token = $3 AND r.expires_at > {now}"

	extend = `
		UPDATE sallyport_idem AS r
		SET lease_ends = {now} + {us} * $4,
			expires_at = CASE WHEN r.expires_at < {now} + {us} * $4 THEN {now} + {us} * $4 ELSE r.expires_at END
		WHERE ` + held + " AND r.state = 1"

	// settle changes what is claimed and nothing else; it returns whether what
	// stands there in the end is what was to be saved.
	settle = `
		UPDATE sallyport_idem AS r
		SET state = CASE WHEN r.state = 1 THEN $4 ELSE r.state END,
			payload = CASE WHEN r.state = 1 THEN $5 ELSE r.payload END,
			expires_at = CASE WHEN r.state = 1 THEN {now} + {us} * $6 ELSE r.expires_at END
		WHERE ` + held + `
		RETURNING state = $4 AND payload = $5`

	release = "DELETE FROM sallyport_idem AS r WHERE " + held + " AND r.state = 1"
	settled = "SELECT true FROM sallyport_idem AS r WHERE " + held + " AND r.state <> 1"

	// Rows that a joined request is about to reuse are locked, and left to it.
	postgresSweep = `
		DELETE FROM sallyport_idem WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM sallyport_idem WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`
	sqliteSweep = `
		DELETE FROM sallyport_idem WHERE rowid IN (
			SELECT rowid FROM sallyport_idem WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1)`
)

// claim returns the statement that claims a key if it may be claimed.
func claim(values string) string {
	return `
		INSERT INTO sallyport_idem AS r
			(partition_hash, digest, token, fingerprint, attempt, state, lease_ends, expires_at, payload)
		` + values + `
		ON CONFLICT (digest, partition_hash) DO UPDATE
		SET token = excluded.token,
			fingerprint = CASE WHEN r.expires_at <= {now} THEN excluded.fingerprint ELSE r.fingerprint END,
			attempt = CASE WHEN r.expires_at <= {now} THEN 1
				WHEN r.state = 1 AND r.token = excluded.token THEN r.attempt
				ELSE r.attempt + 1 END,
			state = 1,
			lease_ends = excluded.lease_ends,
			expires_at = excluded.expires_at,
			payload = excluded.payload
		WHERE ` + claimable + `
		RETURNING 1, fingerprint, attempt, 0, payload`
}

// postgresBegin looks and claims in one statement, so that a replay writes
// nothing and a fresh claim takes one round trip.
//
// A joined request holds the lock of its key to the end of its transaction,
// alone; those who claim with a lease share it for as long as the statement
// takes. Without it they would wait at the joined one's uncommitted row. The
// lock's first number is the table's, and the application's own locks are not
// likely to have it.
func postgresBegin(tryLock string) string {
	return `
		WITH seen (state, fingerprint, attempt, lease_left, payload) AS MATERIALIZED (` + peek + `),
		lock AS MATERIALIZED (SELECT ` + tryLock + `('sallyport_idem'::regclass::oid::int4, $8::int4) AS ours),
		claim (state, fingerprint, attempt, lease_left, payload) AS (` +
		claim(`SELECT $1::bytea, $2::bytea, $3::bytea, $4::bytea, 1, 1, {now} + {us} * $6, {now} + {us} * $7, ''::bytea
			FROM lock WHERE ours AND NOT EXISTS (SELECT FROM seen)`) + `)
		SELECT * FROM seen
		UNION ALL SELECT * FROM claim
		UNION ALL SELECT 2, ''::bytea, 0, 0, ''::bytea FROM lock WHERE NOT ours AND NOT EXISTS (SELECT FROM seen)`
}
