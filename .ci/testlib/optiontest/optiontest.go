// Package optiontest tests that no option is left without an effect.
package optiontest

import (
	"reflect"
	"testing"
)

// Every fails for a row that changes nothing of what is seen, and for a
// field without a row.
func Every[O any](t testing.TB, seen func(set func(*O)) string, rows map[string]func(*O)) {
	t.Helper()
	usual := seen(func(*O) {})
	if again := seen(func(*O) {}); again != usual {
		t.Fatalf("without a change: got %s and %s", usual, again)
	}
	fields := reflect.TypeFor[O]()
	for _, field := range reflect.VisibleFields(fields) {
		set := rows[field.Name]
		if !field.IsExported() {
			continue
		} else if set == nil {
			t.Errorf("no row says what %s.%s does", fields, field.Name)
		} else if seen(set) == usual {
			t.Errorf("%s.%s has no effect", fields, field.Name)
		}
	}
	if len(rows) > fields.NumField() {
		t.Errorf("%d rows for %d fields", len(rows), fields.NumField())
	}
}
