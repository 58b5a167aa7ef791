//go:build !windows

package atomicfile

// isHeld returns false: open files are renamed and removed here.
func isHeld(error) bool { return false }
