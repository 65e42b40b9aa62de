package idemsql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// MySQL has no statement that looks, claims and tells. A claim is a look, which
// takes no lock of InnoDB, and then an INSERT, or an UPDATE of the row that the
// look has found. Either of them fails when the look was out of date, and the
// claim begins again.
//
// A joined request holds the named lock of its key (GET_LOCK) from the look to
// the end of its transaction. Those who look learn from it at once that the key
// is taken, where they would wait at the uncommitted row. The name has a hash
// of the database and the table in it, since all of a server share the names.
// The lock does nothing between the nodes of a Galera cluster: two of them may
// then run a handler at the same time, and one of the transactions fails.
const (
	mysqlLock = "CONCAT('sallyport ', LEFT(SHA2(CONCAT(" + mysqlHome + ", HEX($1)), 256), 48))"

	// A handler may USE another database.
	mysqlHome  = "DATABASE(), 'sallyport_idem'"
	mysqlWhere = "SELECT CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`'), QUOTE(CONCAT(" + mysqlHome + ")) " +
		"FROM DUAL WHERE DATABASE() IS NOT NULL"

	// mysqlLook returns whether there is a row, whether the key is ours to
	// claim, and the columns of peek. It asks for the lock only when nothing
	// else keeps the key from being claimed. Of a row that does not, it says
	// nothing: another request may be about to replace it.
	mysqlLook = `
		SELECT r.request_key IS NOT NULL,
			CASE WHEN {open} THEN {lock} END,
			CASE WHEN {open} THEN 2 ELSE ` + claims.State + ` END,
			CASE WHEN {open} THEN '' ELSE r.fingerprint END,
			0,
			CASE WHEN {open} THEN 0 ELSE {left} END,
			CASE WHEN {open} THEN '' ELSE r.payload END
		FROM (SELECT 1) AS one LEFT JOIN sallyport_idem AS r ON ` + claims.TheKey
	mysqlOpen = "(r.request_key IS NULL OR " + claims.Claimable + ")"

	mysqlInsert = `
		INSERT INTO sallyport_idem (request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload,
			account, began, units)
		VALUES ($1, $2, $3, 1, 1, {now} + $5, {now} + $6, '', $7, CASE WHEN $8 IS NOT NULL THEN {now} END, $8)`

	// Columns are set from the left to the right, and the later ones see it.
	mysqlTakeOver = `
		UPDATE sallyport_idem AS r
		SET attempt = CASE WHEN r.expires_at <= {now} THEN 1
				WHEN r.state = 1 AND r.token = $2 AND r.lease_ends > {told} THEN r.attempt
				ELSE r.attempt + 1 END,
			fingerprint = CASE WHEN r.expires_at <= {now} THEN $3 ELSE r.fingerprint END,
			token = $2, state = 1, lease_ends = {now} + $5, expires_at = {now} + $6, payload = '',
			account = $7, began = CASE WHEN $8 IS NOT NULL THEN {now} END, units = $8
		WHERE ` + claims.TheKey + " AND " + claims.Claimable

	mysqlTaken = `
		SELECT 1, r.fingerprint, r.attempt, 0, r.payload FROM sallyport_idem AS r
		WHERE ` + claims.TheKey + " AND r.token = $2 AND r.state = 1"

	// Rows that a joined request is about to reuse are locked, and left to it.
	// In the other order of the join all rows would be.
	mysqlSweep = `
		DELETE r FROM (
			SELECT request_key FROM sallyport_idem WHERE expires_at <= {now} AND account IS NULL
			ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
		) AS due STRAIGHT_JOIN sallyport_idem AS r ON r.request_key = due.request_key`
)

// mysqlStatements are those that other dialects have as one.
type mysqlStatements struct {
	look, lookAndLock, insert, takeOver, taken string
	// finish gives a connection back as it was; $1 is the key. SET commits what
	// is open, so that has to be ended first.
	finish string
}

var mysql = func() dialect {
	const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	columns := strings.NewReplacer( // not every version has an alias in DELETE
		"{now}", now,
		"{micros}", now,
		"{us}", "1",
		"{told}", "0",
		"{left}", "(lease_ends - "+now+")",
		"sallyport_idem AS r", "sallyport_idem",
		"r.", "",
	).Replace
	look := func(lock string) string {
		return columns(strings.NewReplacer("{open}", mysqlOpen, "{lock}", lock).Replace(mysqlLook))
	}
	d := common(columns)
	d.sweep = strings.NewReplacer("{now}", now).Replace(mysqlSweep)
	d.count, d.add = columns(claims.Count("''", "", "")), mysqlAdd
	d.sql = literals
	d.home, d.where = mysqlHome, mysqlWhere
	d.mysql = &mysqlStatements{
		look:        look("IS_FREE_LOCK(" + mysqlLock + ")"),
		lookAndLock: look("GET_LOCK(" + mysqlLock + ", 0)"),
		insert:      columns(mysqlInsert),
		takeOver:    columns(mysqlTakeOver),
		taken:       columns(mysqlTaken),
		finish:      "SET autocommit = 1, @sallyport = RELEASE_LOCK(" + mysqlLock + ")",
	}
	d.steps, d.engine = []string{mysqlSchema, mysqlUnits}, sqlschema.MySQL()
	return d
}()

// longestLiteral is the most bytes that are written into a statement.
const longestLiteral = 4096

// literals writes the arguments $1, $2 into the statement, which spares the
// round trip that prepares it. They are numbers, bytes and NULL and need no quoting.
// Only a long reply travels as an argument.
func literals(query string, args []any) (string, []any) {
	var text strings.Builder
	var rest []any
	for {
		before, after, found := strings.Cut(query, "$")
		text.WriteString(before)
		if !found {
			return text.String(), rest
		}
		n := 0
		for query = after; query != "" && '0' <= query[0] && query[0] <= '9'; query = query[1:] {
			n = 10*n + int(query[0]-'0')
		}
		arg := args[n-1]
		switch arg := arg.(type) {
		case []byte:
			if len(arg) > longestLiteral {
				text.WriteByte('?')
				rest = append(rest, arg)
				break
			}
			text.WriteString("x'" + hex.EncodeToString(arg) + "'")
		case nil:
			text.WriteString("NULL")
		default:
			fmt.Fprint(&text, arg)
		}
	}
}

// lookMySQL returns the record that keeps a key from being claimed. When there
// is none, ours is true, and there says whether it has a row.
func (s *Store) lookMySQL(
	ctx context.Context, q querier, look string, c *idem.Claim,
) (r idem.Record, there, ours bool, err error) {
	var free sql.NullBool
	r, err = s.decision(ctx, q, look, []any{&there, &free}, claims.PeekArgs(c)...)
	return r, there, free.Bool, err
}

// claimMySQL claims a key that nothing keeps from being claimed.
func (s *Store) claimMySQL(ctx context.Context, q querier, c *idem.Claim, there bool) (idem.Record, error) {
	statement := s.mysql.insert
	if there {
		statement = s.mysql.takeOver
	}
	err := s.write(ctx, q, statement, claims.Args(c)...)
	switch {
	case err == idem.ErrLost || sqlschema.MySQLNumber(err) == sqlschema.MySQLDuplicate:
		return idem.Record{}, claims.ErrOvertaken
	case err != nil:
		return idem.Record{}, err
	case !there:
		return idem.Record{State: idem.Claimed, Fingerprint: c.Fingerprint, Attempt: 1}, nil
	}
	r, err := s.decision(ctx, q, s.mysql.taken, nil, claims.Args(c)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = claims.ErrOvertaken
	}
	return r, err
}

// beginMySQL claims a key with a lease. A joined request that takes the key
// between the look and the claim makes it wait for that transaction, which only
// servers that work in different modes can meet.
func (s *Store) beginMySQL(ctx context.Context, q querier, c *idem.Claim) (idem.Record, error) {
	r, there, ours, err := s.lookMySQL(ctx, q, s.mysql.look, c)
	if err != nil || !ours {
		return r, err
	}
	return s.claimMySQL(ctx, q, c, there)
}
