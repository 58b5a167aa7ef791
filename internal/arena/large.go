package arena

import "unsafe"

// AdviseHugePages asks the operating system to back x with huge pages, which speeds up repeated
// sequential reads of more memory than the TLB covers. The pages may extend beyond x. It does
// nothing for slices below 256 KiB or on systems without huge pages.
func AdviseHugePages[T Element](x []T) {
	if size := uintptr(len(x)) * unsafe.Sizeof(*new(T)); size >= minHugePages {
		adviseHugePages(unsafe.Pointer(unsafe.SliceData(x)), size)
	}
}

// minHugePages is the minimum size in bytes for AdviseHugePages.
const minHugePages = 1 << 18
