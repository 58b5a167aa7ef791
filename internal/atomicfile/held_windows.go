package atomicfile

import (
	"errors"

	"golang.org/x/sys/windows"
)

// isHeld reports whether another process may have the file of an error open, or a removed file of its folder.
func isHeld(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED) ||
		errors.Is(err, windows.ERROR_DIR_NOT_EMPTY)
}
