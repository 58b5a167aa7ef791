//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package stream

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock keeps other runs from a file until it is closed.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &BadInput{fmt.Errorf("%s: another run is writing it", f.Name())}
	}
	return nil // some file systems have no locks
}
