package idemsql

import (
	_ "embed"
	"strings"

	"github.com/sallyport-go/sallyport/idem/internal/claims"
	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/postgres-2.sql
var postgresUnits string

//go:embed schema/sqlite.sql
var sqliteSchema string

//go:embed schema/sqlite-2.sql
var sqliteUnits string

//go:embed schema/mysql.sql
var mysqlSchema string

//go:embed schema/mysql-2.sql
var mysqlUnits string

// claiming are the statements that claim a key, or find out why not.
type claiming struct {
	// fresh claims a key that has no row, and is empty where that would not be
	// quicker.
	fresh string
	// Of these, the first that returns a row has decided. None does when
	// another changed the row meanwhile.
	decide []string
}

// dialect is what differs between the databases.
type dialect struct {
	begin, join claiming // outside a transaction, and as the first statement of one
	peek        string   // the part of them that only looks
	keep        string   // stores a reply without a claim; empty where a transaction can roll back a part of itself
	oneWriter   bool
	sweepLooks  bool             // sweep returns how many rows it has removed, and looked at
	mysql       *mysqlStatements // nil in Postgres and SQLite
	home, where string           // see claims.NewNames

	sql sqlschema.Form

	extend, mark, settle, settledAs, release, giveUp, settled, held, owned, erase, sweep string

	count, used, due, uncertain string
	fold, add                   string // locks the totals, and adds to them
	hex                         string // how bytes stand in a statement

	columns string   // of the table
	steps   []string // the schema: how to get from each version to the next
	engine  sqlschema.Engine
}

var postgres = func() dialect {
	expand := claims.Postgres
	d := common(expand)
	with := func(lock string) claiming {
		return claiming{fresh: expand(claims.PostgresFresh(lock)), decide: []string{expand(claims.PostgresBegin(lock))}}
	}
	d.begin, d.join = with(claims.LockShared), with(claims.LockAlone)
	d.keep = expand(claims.PostgresKeep())
	d.sweep, d.sweepLooks = expand(postgresSweep), true
	d.count = expand(claims.Count("''", "sweep_at", ", {now} + {us} * $4"))
	d.fold = postgresFold
	d.hex = "decode('%x', 'hex')"
	d.home, d.where = claims.PostgresHome, claims.PostgresWhere
	d.columns += ", sweep_at"
	d.steps, d.engine = []string{postgresSchema, postgresUnits}, sqlschema.Postgres()
	return d
}()

var sqlite = func() dialect {
	expand := strings.NewReplacer(
		"$", "?",
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		"{micros}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		"{us}", "1",
		"{told}", "0",
		"{left}", "(r.lease_ends - CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
	).Replace
	d := common(expand)
	claim := expand(claims.Claim("", "VALUES ($1, $2, $3, 1, 1, {now} + {us} * $5, {now} + {us} * $6, x'', "+
		"$7, CASE WHEN $8 IS NOT NULL THEN {now} END, $8)"))
	// Outside a transaction the read comes first, so that a replay does not
	// wait for a writer. In a transaction the write comes first: SQLite refuses
	// to write in a transaction that has read what another has changed since.
	d.begin.decide = []string{d.peek, claim}
	d.join.decide = []string{claim, d.peek}
	d.oneWriter = true
	d.sweep = expand(sqliteSweep)
	d.count = expand(claims.Count("x''", "", ""))
	d.steps, d.engine = []string{sqliteSchema, sqliteUnits}, sqlschema.SQLite()
	return d
}()

func common(expand func(string) string) dialect {
	return dialect{
		columns:   "request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload, account, began, units",
		sql:       func(query string, args []any) (string, []any) { return query, args },
		peek:      expand(claims.Peek),
		extend:    expand(claims.Extend),
		mark:      expand(claims.Mark),
		settle:    expand(claims.Settle),
		settledAs: expand(claims.SettledAs),
		release:   expand(claims.Release),
		giveUp:    expand(claims.GiveUp),
		settled:   expand(claims.Settled),
		held:      expand(claims.Held),
		owned:     expand(owned),
		erase:     expand(erase),
		used:      expand(claims.Used),
		due:       expand(claims.Due),
		uncertain: expand(claims.Uncertain),
		fold:      fold,
		add:       add,
		hex:       "x'%x'",
	}
}
