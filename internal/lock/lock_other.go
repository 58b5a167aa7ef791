//go:build !windows && (!unix || aix || solaris)

package lock

import (
	"errors"
	"os"
)

// openLockFile returns ErrUnsupported: the system has no locks.
func openLockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// openOrphan returns ErrUnsupported: owners are unknown.
func openOrphan(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// createFile creates the new file name.
func createFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// tryLock returns ErrUnsupported.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// releaseFile closes f.
func releaseFile(f *os.File) { f.Close() }
