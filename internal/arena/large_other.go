//go:build !linux

package arena

import "unsafe"

func adviseHugePages(unsafe.Pointer, uintptr) {}
