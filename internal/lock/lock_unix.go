//go:build unix && !aix && !solaris

package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openLockFile opens the lock file. It does not wait if name is a pipe.
func openLockFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
}

// openOrphan opens a file that may have no owner.
func openOrphan(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// createFile creates the new file name.
func createFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// tryLock locks f. It returns false if f has another owner, and ErrUnsupported if the file system has
// no locks.
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

// releaseFile removes the file of a held lock, then releases the lock.
func releaseFile(f *os.File) {
	if leadsTo(f.Name(), f) {
		_ = os.Remove(f.Name())
	}
	f.Close()
}
