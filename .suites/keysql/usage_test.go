package keysql_test

import "testing"

// Rows that break off are an error, and not a short answer.
func TestUsageBreaksOff(t *testing.T) {
	for _, row := range []struct {
		name  string
		open  func(testing.TB) database
		third string // fails for the third row
		rows  string
	}{
		{"postgres", postgres, "10 / (3 - n)", "generate_series(1, 5) AS s(n)"},
		{"sqlite", func(t testing.TB) database { return sqliteFile(t) },
			"CASE n WHEN 3 THEN abs(-9223372036854775807 - 1) ELSE n END",
			"(SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := row.open(t)
			store := d.store(t)
			k := inserted(t, store, "acme", 1)[0]
			db := d.open(t)
			execute(t, db, "ALTER TABLE sallyport_keys_scopes RENAME TO aside")
			execute(t, db, "CREATE VIEW sallyport_keys_scopes AS SELECT '"+k.ID+"' AS id, 'tasks:read' AS scope, "+
				row.third+" AS day FROM "+row.rows)
			if u, err := store.Usage(t.Context(), "acme", k.ID); err == nil {
				t.Errorf("Usage: got %+v, want an error", u)
			}
		})
	}
}
