package sqlschema

import (
	"errors"
	"reflect"
)

// Numbers of errors of MySQL and MariaDB.
const (
	mysqlRowChanged    = 1020 // since the statement began, with innodb_snapshot_isolation
	mysqlTableExists   = 1050
	mysqlColumnExists  = 1060
	mysqlIndexExists   = 1061
	MySQLDuplicate     = 1062
	MySQLDeadlock      = 1213
	mysqlTriggerExists = 1359
)

// mysqlExists are those for what a statement makes and is there already.
var mysqlExists = []int{mysqlTableExists, mysqlColumnExists, mysqlIndexExists, MySQLDuplicate, mysqlTriggerExists}

// MySQLAgain reports whether MySQL has taken back what a statement wrote, and
// the same may succeed now.
func MySQLAgain(err error) bool {
	number := MySQLNumber(err)
	return number == MySQLDeadlock || number == mysqlRowChanged
}

// MySQLNumber returns the number of an error that the server sent, or 0. The
// type of these errors, of package github.com/go-sql-driver/mysql, has it as a
// field and not as a method.
func MySQLNumber(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		value := reflect.Indirect(reflect.ValueOf(err))
		if value.Kind() != reflect.Struct {
			continue
		}
		if f, ok := value.Type().FieldByName("Number"); ok && len(f.Index) == 1 && f.Type.Kind() == reflect.Uint16 {
			return int(value.FieldByIndex(f.Index).Uint())
		}
	}
	return 0
}
