package keysql

import (
	_ "embed"
	"strings"
	"time"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

// A dialect is what differs between the databases.
type dialect struct {
	sql     func(query string) string // turns the parameters ?1, ?2 into the database's
	time    func(t time.Time) any     // the time as it is stored, to the microsecond
	steps   []string                  // the schema: how to get from each version to the next
	prepare string                    // makes the table that holds the version
	touch   string
	horizon string
}

var postgres = dialect{
	sql:     func(query string) string { return strings.ReplaceAll(query, "?", "$") },
	time:    func(t time.Time) any { return t.UTC().Truncate(time.Microsecond) },
	steps:   []string{postgresSchema},
	prepare: postgresPrepare,
	touch:   postgresTouch,
	horizon: postgresHorizon,
}

var sqlite = dialect{
	sql:     func(query string) string { return query },
	time:    func(t time.Time) any { return t.UnixMicro() },
	steps:   []string{sqliteSchema},
	prepare: versionTable,
	touch:   sqliteTouch,
	horizon: sqliteHorizon,
}

// optional returns NULL for the zero time.
func (d dialect) optional(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return d.time(t)
}
