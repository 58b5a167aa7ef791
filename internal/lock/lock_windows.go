package lock

import (
	"os"

	"golang.org/x/sys/windows"
)

// byteRange is where the lock lies: behind the owner's number, which others read.
var byteRange = windows.Overlapped{Offset: 1 << 20}

// open opens the lock file.
func open(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
}

// try locks f. It returns false when f has another owner.
func try(f *os.File) (bool, error) {
	at := byteRange
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

// remove releases the lock. The file stays when another process has it open.
func remove(f *os.File) {
	f.Close()
	_ = os.Remove(f.Name())
}
