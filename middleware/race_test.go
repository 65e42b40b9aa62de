//go:build race

package middleware_test

// streamSize is smaller where each byte is watched.
const streamSize = 64 << 20
