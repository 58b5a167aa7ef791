//go:build !linux

package arena

import "unsafe"

// adviseHugePages does nothing: the system has no such advice.
func adviseHugePages(unsafe.Pointer, uintptr) {}
