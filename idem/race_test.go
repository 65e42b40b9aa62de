//go:build race

package idem_test

// The race detector moves variables to the heap.
const raceEnabled = true
