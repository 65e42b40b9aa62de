//go:build unix

package keycli

import (
	"io/fs"
	"os"
	"syscall"
)

// private reports whether a file is the user's own, and only theirs to read and
// write.
func private(info fs.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode().IsRegular() && info.Mode().Perm()&0o077 == 0 && ok && int(of.Uid) == os.Geteuid()
}
