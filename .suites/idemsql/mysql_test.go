package idemsql_test

import (
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Whatever the connections of a program are set to, keys are compared byte for
// byte and times are the same.
func TestSuiteWithSettings(t *testing.T) {
	for name, set := range map[string]func(*mysql.Config){
		"interpolateParams": func(c *mysql.Config) {
			c.InterpolateParams, c.ParseTime, c.Loc = true, true, time.FixedZone("", 3600)
		},
		"clientFoundRows": func(c *mysql.Config) { c.ClientFoundRows = true },
		"latin1":          func(c *mysql.Config) { c.Params = map[string]string{"charset": "latin1"} },
		"session": func(c *mysql.Config) {
			c.Params = map[string]string{
				"time_zone": "'+05:30'", "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
				"tx_isolation": "'READ-COMMITTED'", "collation_connection": "utf8mb4_unicode_ci",
			}
		},
		"serializable": func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mariadb(t)
			d.my = d.my.Clone()
			set(d.my)
			suite(d, d.open(t)).Run(t)
		})
	}
}
