package infile

import (
	"fmt"
	"io/fs"
)

// Identity returns what tells a version of a file from others without reading it: its size, the
// time of its last change, and where the system has them its device, inode and the time of the
// last change of these.
func Identity(info fs.FileInfo) string {
	return fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), systemIdentity(info))
}
