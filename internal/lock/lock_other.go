//go:build !windows && (!unix || aix || solaris)

package lock

import (
	"errors"
	"os"
)

// open reports that the system has no locks, such as a browser.
func open(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// openOrphan reports that no file is known to be without an owner.
func openOrphan(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// create creates the file name, which must not exist.
func create(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

func try(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func remove(f *os.File) { f.Close() }
