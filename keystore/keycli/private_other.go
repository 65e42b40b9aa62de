//go:build !unix

package keycli

import "io/fs"

// private reports whether a file is one. Its mode does not say whose.
func private(info fs.FileInfo) bool { return info.Mode().IsRegular() }
