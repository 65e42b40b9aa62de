package keysql

import (
	"database/sql"
	_ "embed"
	"encoding/hex"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

var (
	//go:embed schema/postgres.sql
	postgresSchema string
	//go:embed schema/postgres2.sql
	postgresRefusals string
	//go:embed schema/sqlite.sql
	sqliteSchema string
	//go:embed schema/sqlite2.sql
	sqliteRefusals string
	//go:embed schema/mysql.sql
	mysqlSchema string
	//go:embed schema/mysql2.sql
	mysqlRefusals string
)

// A dialect is what differs between the databases.
type dialect struct {
	sql      sqlschema.Form        // turns the parameters ?1, ?2 into the database's
	time     func(t time.Time) any // the time as it is stored, to the microsecond
	longest  int                   // bytes of an identifier; 0 means any number
	steps    []string              // the schema: how to get from each version to the next
	engine   sqlschema.Engine
	issued   string // condition: the issue token ?3 made the key
	touch    touch
	counter  string // query for ?4 of horizon; empty if horizon has none
	horizon  string
	lock     string // waits for other transactions that insert keys of the organization ?1
	lockKeys string // locks the keys of the organization ?1 as touch does; empty where touch tries again
	erasedID string // the id of an erased key, from its digest
	batch    string // deletes %[4]d rows of the table %[1]s where %[2]s the time %[3]s is before ?1
	ends     string // the time at which a child expires or is revoked

	// A list of all organizations: the condition for what is after ?9, ?7 and ?8,
	// as a range of the index, and that index, where it has to be named. Of what
	// expires: the condition for what is after ?7 and ?8.
	after, byIndex, later string

	ofAudit string // the indexes of an organization's entries, where they have to be named

	// isolation is that of a transaction, where another one that a program may
	// have made the default would not see what was written during a wait.
	isolation sql.IsolationLevel

	folded  string // the text %s, its ASCII letters or all in lower case
	within  string // where ? stands in the text %s; 0: nowhere
	needed  string // condition: the key has the scope of a row s of its scopes
	holding string // the number of scopes that the key has

	jsonText func(text string) string // encodes a text of the batch that touch gets
}

var postgres = dialect{
	sql: func(query string, args []any) (string, []any) {
		return strings.ReplaceAll(query, "?", "$"), args
	},
	time:     func(t time.Time) any { return t.UTC().Truncate(time.Microsecond) },
	steps:    []string{postgresSchema, postgresRefusals},
	engine:   sqlschema.Postgres(),
	issued:   issued,
	touch:    postgresTouch,
	horizon:  postgresHorizon,
	lock:     "SELECT pg_advisory_xact_lock(hashtextextended('sallyport_keys ' || ?1, 0))",
	lockKeys: "SELECT 1 FROM sallyport_keys WHERE organization = ?1 ORDER BY id FOR UPDATE",
	erasedID: "encode(digest, 'hex')",
	batch:    batch,
	ends:     "least(expires_at, revoked_at)",
	after:    afterRow,
	later:    laterRow,

	isolation: sql.LevelReadCommitted,

	folded:  "lower(%s)",
	within:  "strpos(%s, ?)",
	needed:  `strpos(scopes, '"' || s.scope || '"') > 0`,
	holding: "json_array_length(scopes::json)",

	jsonText: func(text string) string { return text },
}

var sqlite = dialect{
	sql:      func(query string, args []any) (string, []any) { return query, args },
	time:     func(t time.Time) any { return t.UnixMicro() },
	steps:    []string{sqliteSchema, sqliteRefusals},
	engine:   sqlschema.SQLite(),
	issued:   issued,
	touch:    sqliteTouch,
	horizon:  sqliteHorizon,
	lock:     lockCounter,
	erasedID: "lower(hex(digest))",
	batch:    batch,
	ends:     "ifnull(min(expires_at, revoked_at), ifnull(expires_at, revoked_at))",
	after:    afterRow,
	later:    laterRow,

	folded:  "lower(%s)",
	within:  "instr(%s, ?)",
	needed:  `instr(scopes, '"' || s.scope || '"') > 0`,
	holding: "json_array_length(scopes)",

	jsonText: func(text string) string { return text },
}

var mysql = dialect{
	sql:      positional,
	time:     func(t time.Time) any { return t.UnixMicro() },
	longest:  512,
	steps:    []string{mysqlSchema, mysqlRefusals},
	engine:   sqlschema.MySQL(),
	issued:   "issued = ?3",
	touch:    mysqlTouch,
	counter:  mysqlCounter,
	horizon:  mysqlHorizon,
	lock:     lockCounter,
	erasedID: "LOWER(HEX(digest))",
	batch:    "DELETE FROM %[1]s WHERE %[2]s %[3]s < ?1 ORDER BY %[3]s LIMIT %[4]d",
	ends:     "child_ends",
	byIndex:  " FORCE INDEX (sallyport_keys_children)", // or it reads the range of the parent alone
	after: " AND (organization < ?9 OR organization = ?9 AND created_at < ?7 OR " +
		"organization = ?9 AND created_at = ?7 AND id < ?8)",
	later: " AND expires_at >= ?7 AND (expires_at > ?7 OR id > ?8)",

	ofAudit: " FORCE INDEX (sallyport_keys_audit_list, sallyport_keys_audit_key)", // or it passes over newer entries

	folded:  "CAST(LOWER(CONVERT(%s USING utf8mb4)) AS BINARY)", // the columns are bytes, which have no case
	within:  "INSTR(%s, ?)",
	needed:  `INSTR(scopes, CONCAT('"', s.scope, '"')) > 0`,
	holding: "JSON_LENGTH(CONVERT(scopes USING utf8mb4))",

	jsonText: func(text string) string { return hex.EncodeToString([]byte(text)) },
}

// batch sorts, so that Postgres takes the index of the time. MySQL has a text of
// its own, because it would read and lock all rows for the subquery.
const batch = "DELETE FROM %[1]s WHERE id IN " +
	"(SELECT id FROM %[1]s WHERE %[2]s %[3]s < ?1 ORDER BY %[3]s LIMIT %[4]d)"

const (
	afterRow = " AND (organization, created_at, id) < (?9, ?7, ?8)"
	laterRow = " AND (expires_at, id) > (?7, ?8)"
)

const issued = "issue_token = ?3 AND issue_token <> ''"

// lockCounter takes the lock that every insert takes, before it is counted.
const lockCounter = "UPDATE sallyport_keys_changes SET number = number WHERE length(?1) >= 0"

// positional replaces numbered parameters, which MySQL does not have, by those
// that stand for one argument after the other. In an INSERT a row that is there
// already is error 1062, which Store.exec knows.
func positional(query string, args []any) (string, []any) {
	query = strings.TrimSuffix(query, onConflict)
	var text strings.Builder
	var inOrder []any
	for {
		before, after, found := strings.Cut(query, "?")
		text.WriteString(before)
		if !found {
			return text.String(), inOrder
		}
		text.WriteByte('?')
		n := 0
		for query = after; query != "" && '0' <= query[0] && query[0] <= '9'; query = query[1:] {
			n = 10*n + int(query[0]-'0')
		}
		inOrder = append(inOrder, args[n-1])
	}
}

// optional returns NULL for the zero time.
func (d dialect) optional(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return d.time(t)
}
