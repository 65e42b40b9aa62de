package keystore

import (
	"fmt"
	"reflect"
	"time"
)

// absent reports whether v is nil, or a nil pointer in an interface.
func absent(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// orDefault returns value, or fallback if it is zero. It panics on a negative one.
func orDefault[T int | time.Duration](name string, value, fallback T) T {
	if value < 0 {
		panic(fmt.Sprintf("keystore: negative %s", name))
	}
	if value == 0 {
		return fallback
	}
	return value
}
