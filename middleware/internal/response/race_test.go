//go:build race

package response_test

// streamSize is smaller where each byte is watched.
const streamSize = 64 << 20
