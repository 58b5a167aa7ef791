package arena

import (
	"syscall"
	"unsafe"
)

// largePage is the size of huge pages where small pages have 4 KiB. With larger pages the system
// ignores misaligned advice.
const (
	largePage    = 2 << 20
	madvHugePage = 14
	madvCollapse = 25
)

// adviseHugePages advises the huge pages that contain size bytes from p.
func adviseHugePages(p unsafe.Pointer, size uintptr) {
	before := uintptr(p) % largePage
	n := (before + size + largePage - 1) / largePage * largePage
	// syscall.Madvise needs a slice, which would extend beyond x. Ignored advice is no error.
	for _, advice := range []uintptr{
		madvHugePage, // pages without memory yet
		madvCollapse, // pages of reused memory
	} {
		syscall.Syscall(syscall.SYS_MADVISE, uintptr(p)-before, n, advice)
	}
}
