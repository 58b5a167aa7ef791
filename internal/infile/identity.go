package infile

import (
	"fmt"
	"io/fs"
)

// Identity returns a string that differs between versions of a file, without reading it: its size,
// the time of its last change and, if the system has them, its device, its inode and the time of
// the inode's last change.
func Identity(info fs.FileInfo) string {
	return fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), systemIdentity(info))
}
