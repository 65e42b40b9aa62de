// Package arguments looks at what a constructor was given.
package arguments

import "reflect"

// Absent reports whether v is nil, or a nil pointer or function in an interface,
// which would panic at the first request.
func Absent(v any) bool {
	value := reflect.ValueOf(v)
	switch value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return value.IsNil()
	}
	return false
}
