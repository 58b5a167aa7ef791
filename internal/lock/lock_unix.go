//go:build unix && !aix && !solaris

package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openLockFile opens the lock file, without waiting for the other end of a pipe of that name.
func openLockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
}

// openOrphan opens a file that may have lost its owner.
func openOrphan(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// createFile creates the file name, which must not exist.
func createFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// tryLock locks f. It returns false when f has another owner, and ErrUnsupported where the
// file system has no locks.
func tryLock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EWOULDBLOCK:
			return false, nil
		case unix.EINTR:
		case unix.ENOLCK, unix.ENOSYS, unix.ENOTSUP:
			return false, errors.ErrUnsupported
		default:
			return false, err
		}
	}
}

// releaseFile removes the file of a held lock, then releases it.
func releaseFile(f *os.File) {
	if leadsTo(f.Name(), f) {
		_ = os.Remove(f.Name())
	}
	f.Close()
}
