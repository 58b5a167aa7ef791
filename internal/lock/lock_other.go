//go:build !windows && (!unix || aix || solaris)

package lock

import (
	"errors"
	"os"
)

// openLockFile reports that the system has no locks, such as a browser.
func openLockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// openOrphan reports that no file is known to be without an owner.
func openOrphan(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// createFile creates the file name, which must not exist.
func createFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func releaseFile(f *os.File) { f.Close() }
