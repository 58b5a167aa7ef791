package arena

import (
	"syscall"
	"unsafe"
)

// Large pages have this size where small ones have 4 KiB; where both are larger, advice
// that begins in the middle of one is not taken.
const (
	largePage    = 2 << 20
	madvHugePage = 14
	madvCollapse = 25
)

func adviseHugePages(p unsafe.Pointer, size uintptr) {
	before := uintptr(p) % largePage
	n := (before + size + largePage - 1) / largePage * largePage
	// The number of the call: syscall.Madvise wants a slice, which would reach beyond x.
	// Advice that is not taken is no error.
	for _, advice := range []uintptr{
		madvHugePage, // for pages that are not there yet
		madvCollapse, // for those of memory that was given back and is lent again
	} {
		syscall.Syscall(syscall.SYS_MADVISE, uintptr(p)-before, n, advice)
	}
}
