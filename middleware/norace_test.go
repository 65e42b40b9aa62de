//go:build !race

package middleware_test

const streamSize = 1 << 30
