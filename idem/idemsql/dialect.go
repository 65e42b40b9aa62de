package idemsql

import (
	_ "embed"
	"strings"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

// dialect is what differs between the databases.
type dialect struct {
	// begin and join are the statements that decide about a claim, outside a
	// transaction and as the first of one: the first that returns a row has
	// decided. None does when another changed the row meanwhile.
	begin, join []string
	peek        string // the part of them that only looks
	locks       bool   // they take the number of the key's lock as one more parameter
	oneWriter   bool

	extend, settle, release, settled, sweep string

	steps   []string // the schema: how to get from each version to the next
	prepare string   // makes the table that holds the version
}

var postgres = func() dialect {
	expand := strings.NewReplacer(
		"{now}", "statement_timestamp()", // now() would be the start of the transaction
		"{us}", "interval '1 microsecond'",
		"{left}", "(extract(epoch FROM r.lease_ends - statement_timestamp()) * 1000000)::bigint",
	).Replace
	d := common(expand)
	d.begin = []string{expand(postgresBegin("pg_try_advisory_xact_lock_shared"))}
	d.join = []string{expand(postgresBegin("pg_try_advisory_xact_lock"))}
	d.locks = true
	d.sweep = expand(postgresSweep)
	d.steps, d.prepare = []string{postgresSchema}, postgresPrepare
	return d
}()

var sqlite = func() dialect {
	expand := strings.NewReplacer(
		"$", "?",
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		"{us}", "1",
		"{left}", "(r.lease_ends - CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
	).Replace
	d := common(expand)
	claim := expand(claim("VALUES ($1, $2, $3, $4, 1, 1, {now} + {us} * $6, {now} + {us} * $7, x'')"))
	// A replay does not have to wait for whoever writes. In a transaction the
	// write comes first: one that began with reading could not go on to write
	// when somebody else had written in between.
	d.begin = []string{d.peek, claim}
	d.join = []string{claim, d.peek}
	d.oneWriter = true
	d.sweep = expand(sqliteSweep)
	d.steps, d.prepare = []string{sqliteSchema}, versionTable
	return d
}()

func common(expand func(string) string) dialect {
	return dialect{
		peek:    expand(peek),
		extend:  expand(extend),
		settle:  expand(settle),
		release: expand(release),
		settled: expand(settled),
	}
}
