package keystore

import (
	"cmp"
	"fmt"
	"time"
)

// orDefault returns value, or fallback if it is zero. It panics on a negative one.
func orDefault[T int | time.Duration](name string, value, fallback T) T {
	if value < 0 {
		panic(fmt.Sprintf("keystore: negative %s", name))
	}
	return cmp.Or(value, fallback)
}
