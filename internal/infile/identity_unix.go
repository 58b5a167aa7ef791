//go:build unix && !linux

package infile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// systemIdentity returns device and inode.
func systemIdentity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d %d", s.Dev, s.Ino)
	}
	return ""
}
