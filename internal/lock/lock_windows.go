package lock

import (
	"os"

	"golang.org/x/sys/windows"
)

// byteRange is the locked range, after all content, so that others can read the content.
var byteRange = windows.Overlapped{OffsetHigh: 1 << 30}

// openLockFile opens the lock file.
func openLockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
}

// openOrphan opens a file that may have no owner.
func openOrphan(name string) (*os.File, error) { return openShared(name, windows.OPEN_EXISTING) }

// createFile creates the new file name.
func createFile(name string) (*os.File, error) { return openShared(name, windows.CREATE_NEW) }

// openShared opens a file so that it can be renamed and removed while open.
func openShared(name string, how uint32) (*os.File, error) {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := windows.CreateFile(path, windows.GENERIC_READ|windows.GENERIC_WRITE,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, how, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// tryLock locks f. It returns false if f has another owner.
func tryLock(f *os.File) (bool, error) {
	at := byteRange
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

// releaseFile releases the lock and removes the file, unless another process has it open.
func releaseFile(f *os.File) {
	f.Close()
	_ = os.Remove(f.Name())
}
