package idemsql_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// Whatever the connections of a program are set to, keys are compared byte for
// byte and times are the same.
func TestSuiteWithSettings(t *testing.T) {
	t.Parallel()
	for name, set := range sqltest.Settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mariadb(t)
			d.my = d.my.Clone()
			set(d.my)
			suite(d, d.open(t)).Run(t)
		})
	}
}

// A look that another request has made out of date by the next statement is no
// error: the claim begins again.
func TestOvertakenInMySQL(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	plain := d.open(t)
	for at, want := range map[string]idem.State{ // the statement before which it happens
		"INSERT INTO sallyport_idem": idem.InProgress, "UPDATE sallyport_idem": idem.Claimed,
		"SELECT 1, fingerprint": idem.Claimed,
	} {
		c := claim(at)
		if want == idem.Claimed {
			begin(t, d.on(plain, idemsql.Options{}), c, idem.Claimed)
			d.advance(t, plain, 2*time.Hour)
		}
		tries := 0
		store := d.on(d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
			statement = strings.ReplaceAll(statement, "`"+d.my.DBName+"`.", "")
			if !strings.HasPrefix(strings.TrimSpace(statement), at) {
				return nil
			}
			if tries++; tries == 1 && want == idem.Claimed {
				execute(t, plain, "DELETE FROM sallyport_idem")
			} else if tries == 1 {
				begin(t, d.on(plain, idemsql.Options{}), c, idem.Claimed)
			}
			return nil
		}), idemsql.Options{})
		begin(t, store, again(c), want)
		if tries == 0 {
			t.Errorf("there was no %q", at)
		}
	}
}

// A connection without a default database is told so, and not that another
// server migrates.
func TestMySQLWithoutDatabase(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	d.my = d.my.Clone()
	d.my.DBName = ""
	err := idemsql.MySQL(d.open(t), idemsql.Options{}).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "No database selected") {
		t.Errorf("Migrate without a database returned %v", err)
	}
}
