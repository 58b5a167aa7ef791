//go:build !linux

package suite

// KeepFilesInMemory changes nothing on this system.
func KeepFilesInMemory() {}
