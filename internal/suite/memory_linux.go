package suite

import (
	"flag"
	"os"
	"syscall"
)

// KeepFilesInMemory places the temporary files of tests in memory, because syncing them to a disk takes
// much of the time of tests that save. Call it in TestMain. It changes nothing with -long, if TMPDIR is
// set, or if the system has no file system in memory from which programs can run, with 1 GiB of room.
func KeepFilesInMemory() {
	const dir, noExec = "/dev/shm", 8
	flag.Parse()
	var s syscall.Statfs_t
	if IsLong() || os.Getenv("TMPDIR") != "" || syscall.Statfs(dir, &s) != nil || s.Flags&noExec != 0 || s.Bavail < 1<<30/uint64(s.Bsize) {
		return
	}
	if f, err := os.CreateTemp(dir, ""); err == nil {
		f.Close()
		os.Remove(f.Name())
		os.Setenv("TMPDIR", dir)
	}
}
