package arena

import "unsafe"

// AdviseHugePages asks for new memory in large pages: what is read from one end to the other again
// and again, and is more than the processor knows the places of small pages of, is read
// faster then. Pages at its ends may be those of other memory, too. Where the system has
// no large pages nothing happens.
func AdviseHugePages[T Element](x []T) {
	if size := uintptr(len(x)) * unsafe.Sizeof(*new(T)); size >= minHugePages {
		adviseHugePages(unsafe.Pointer(unsafe.SliceData(x)), size)
	}
}

// minHugePages is the number of bytes that large pages are asked for.
const minHugePages = 1 << 18
