package infile

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// FreeDisk returns the bytes that the file system of f still holds; math.MaxInt64 if the system does not report them
// (all but Linux), or the file system has no bound.
func FreeDisk(f *os.File) int64 {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil || s.Blocks == 0 || s.Bsize <= 0 || s.Bavail > uint64(math.MaxInt64/int64(s.Bsize)) {
		return math.MaxInt64
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
