// Package claims is what the stores in SQL databases share: the statements about
// claims, what their answers mean, and the turns of joined requests.
package claims

import "strings"

// The statements are written for all databases; a dialect puts its own words
// for what stands in braces: the database's time now, the same in microseconds
// since 1970, a microsecond, how many of those are left of a lease, and when the
// lease ends of a claim that is marked. States are the numbers of idem.State, and
// Lapsed.
//
// The parameters of the statements that begin are $1 the key, $2 the token, $3
// the fingerprint, $4 whether to take over, $5 the lease and $6 the retention, $7
// the account and $8 the units, and in Postgres $9 the number of the key's lock
// and $10 the retention that the sweep goes by. They return state, fingerprint,
// attempt, the lease left and the payload.
const (
	TheKey = "r.request_key = $1"

	// Claimable says of a row that the claim may have it: when it has expired, not
	// before its charge is added up. One that is added up, which only another clock or
	// the start of a statement puts before its end, is not taken over: it would be
	// charged twice. It is never NULL.
	Claimable = `(CASE WHEN r.expires_at <= {now} THEN r.account IS NULL
		ELSE r.state = 1 AND r.token = $2 AND r.lease_ends > {told}
			OR $4 AND r.fingerprint = $3 AND (r.state = 4 OR r.state = 1 AND r.lease_ends <= {now})
				AND (r.account IS NOT NULL OR r.began IS NULL) END)`

	// State is that of a row, or Lapsed.
	State = `CASE WHEN r.state <> 1 THEN r.state WHEN r.lease_ends > {now} THEN 2
		WHEN r.lease_ends > {told} THEN 5 ELSE 4 END`

	Peek = `
		SELECT ` + State + `,
			r.fingerprint, 0, {left}, r.payload
		FROM sallyport_idem AS r
		WHERE ` + TheKey + " AND NOT " + Claimable

	// held says of a row that the token holds the claim, or settled it.
	held = TheKey + " AND r.token = $2 AND r.expires_at > {now}"

	Extend = `
		UPDATE sallyport_idem AS r
		SET lease_ends = {now} + {us} * $3,
			expires_at = CASE WHEN r.expires_at < {now} + {us} * $3 THEN {now} + {us} * $3 ELSE r.expires_at END
		WHERE ` + held + " AND r.state = 1 AND r.lease_ends > {told}"

	// Mark is for a claim that is Lapsed, before somebody is told that it is
	// Unknown: from then on it cannot be renewed.
	Mark = `
		UPDATE sallyport_idem AS r SET lease_ends = {told}
		WHERE ` + TheKey + " AND r.state = 1 AND r.lease_ends <= {now} AND r.lease_ends > {told}"

	Settle = `
		UPDATE sallyport_idem AS r SET state = $3, payload = $4, expires_at = {now} + {us} * $5, units = $6
		WHERE ` + held + " AND r.state = 1"

	// PostgresSettle fails when it finds no claim, by a division by zero: the
	// server then skips what follows in the pipeline.
	PostgresSettle = "WITH settled AS (" + Settle + " RETURNING 1) SELECT 1 / count(*) FROM settled"

	// SettledAs returns whether a row holds the outcome that was to be saved, and
	// Settled whether it holds what is left of a claim that was to be freed.
	SettledAs = "SELECT r.state = $3 AND r.payload = $4 FROM sallyport_idem AS r WHERE " + held
	Settled   = "SELECT r.state = 4 AND r.attempt > 1 FROM sallyport_idem AS r WHERE " + held + " AND r.state <> 1"

	// Held returns a row while there is the claim.
	Held = "SELECT true FROM sallyport_idem AS r WHERE " + held + " AND r.state = 1"

	// Release frees a claim, and GiveUp settles as unknown one that took over.
	Release = "DELETE FROM sallyport_idem AS r WHERE " + held + " AND r.state = 1 AND r.attempt = 1"
	GiveUp  = Settle + " AND r.attempt > 1"
)

// Postgres returns a statement in the words of Postgres.
var Postgres = strings.NewReplacer(
	"{now}", "statement_timestamp()", // now() would be the start of the transaction
	"{micros}", "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
	"{us}", "interval '1 microsecond'",
	"{told}", "'epoch'::timestamptz",
	"{left}", "(extract(epoch FROM r.lease_ends - statement_timestamp()) * 1000000)::bigint",
).Replace

// Claim returns the statement that claims a key if it may be claimed; more is a
// further column.
func Claim(more, values string) string {
	set := ""
	if more != "" {
		set = ",\n\t\t\t" + more + " = excluded." + more
	}
	return `
		INSERT INTO sallyport_idem AS r ` + columns(more) + `
		` + values + `
		ON CONFLICT (request_key) DO UPDATE
		SET token = excluded.token,
			fingerprint = CASE WHEN r.expires_at <= {now} THEN excluded.fingerprint ELSE r.fingerprint END,
			attempt = CASE WHEN r.expires_at <= {now} THEN 1
				WHEN r.state = 1 AND r.token = excluded.token AND r.lease_ends > {told} THEN r.attempt
				ELSE r.attempt + 1 END,
			state = excluded.state,
			lease_ends = excluded.lease_ends,
			expires_at = excluded.expires_at,
			payload = excluded.payload,
			account = excluded.account,
			began = excluded.began,
			units = excluded.units` + set + `
		WHERE ` + Claimable + `
		RETURNING 1, fingerprint, attempt, 0, payload`
}

// The lock of a key in Postgres. A joined request holds it to the end of its
// transaction, alone; those who claim with a lease share it for as long as the
// statement takes. Without it they would wait at the joined one's uncommitted
// row. The lock's first number is the table's, and the application's own locks
// are not likely to have it.
const (
	LockAlone  = "pg_try_advisory_xact_lock('sallyport_idem'::regclass::oid::int4, $9::int4)"
	LockShared = "pg_try_advisory_xact_lock_shared('sallyport_idem'::regclass::oid::int4, $9::int4)"

	// A row is to be swept after the end of most replies. Without an account it has
	// neither a time nor units.
	postgresRest = "$7::bytea, CASE WHEN $7::bytea IS NOT NULL THEN {micros} END, $8::bigint, " +
		"{now} + {us} * $10 + interval '5 minutes'"
	postgresClaim = `
		SELECT $1::bytea, $2::bytea, $3::bytea, 1, 1, {now} + {us} * $5, {now} + {us} * $6, ''::bytea, ` + postgresRest
)

// PostgresFresh claims a key that has no row, as most have not, for the least
// that a claim can cost. It is no SELECT, whose snapshot is older than the lock
// and could miss the reply that the last holder has just committed. It writes
// nothing when there is a row or another holds the lock. It names $4 to have the
// parameters of the others.
func PostgresFresh(lock string) string {
	return `
		INSERT INTO sallyport_idem ` + columns("sweep_at") + postgresClaim + `
		WHERE $4::boolean IS NOT NULL AND ` + lock + `
		ON CONFLICT (request_key) DO NOTHING`
}

// PostgresBegin looks and claims in one statement, so that a replay writes
// nothing.
func PostgresBegin(lock string) string {
	return `
		WITH seen (state, fingerprint, attempt, lease_left, payload) AS MATERIALIZED (` + Peek + `),
		lock AS MATERIALIZED (SELECT ` + lock + ` AS ours),
		claim (state, fingerprint, attempt, lease_left, payload) AS (` +
		Claim("sweep_at", postgresClaim+" FROM lock WHERE ours AND NOT EXISTS (SELECT FROM seen)") + `)
		SELECT * FROM seen
		UNION ALL SELECT * FROM claim
		UNION ALL SELECT 2, ''::bytea, 0, 0, ''::bytea FROM lock WHERE NOT ours AND NOT EXISTS (SELECT FROM seen)`
}

// PostgresKeep stores a reply, $5, for a key that nothing keeps from being
// claimed and nobody holds.
func PostgresKeep() string {
	return Claim("sweep_at", `
		SELECT $1::bytea, $2::bytea, $3::bytea, 1, 3, {now}, {now} + {us} * $6, $5::bytea, `+postgresRest+`
		WHERE `+LockAlone)
}

// columns are those that a claim fills, and more if it is not empty.
func columns(more string) string {
	if more != "" {
		more = ", " + more
	}
	return "(request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload, account, began, units" +
		more + ")"
}
