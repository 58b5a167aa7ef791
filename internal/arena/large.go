package arena

import "unsafe"

// AdviseHugePages asks the system to back x [N] with huge pages, which speeds up repeated sequential
// reads of memory beyond the reach of the TLB. The pages may extend beyond x. Slices below 256 KiB
// and systems without huge pages are left alone.
func AdviseHugePages[T Element](x []T) {
	if size := uintptr(len(x)) * unsafe.Sizeof(*new(T)); size >= minHugePages {
		adviseHugePages(unsafe.Pointer(unsafe.SliceData(x)), size)
	}
}

// minHugePages is the minimum size in bytes for AdviseHugePages.
const minHugePages = 1 << 18
