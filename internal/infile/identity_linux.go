package infile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// systemIdentity returns device, inode and the time of their last change.
func systemIdentity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d %d %d", s.Dev, s.Ino, s.Ctim.Nano())
	}
	return ""
}
