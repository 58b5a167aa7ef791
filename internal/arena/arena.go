// Package arena lends scratch memory: slabs that are kept and reused, so that
// hot paths do not allocate.
package arena

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Arena hands out slices from one growing slab. It belongs to one goroutine.
type Arena struct {
	slab []float64 // one element type keeps the garbage collector out of it
	used int
	over int // words taken beyond it
	most int // highest level since Acquire
}

const line = 8 // float64s in a cache line of 64 bytes

// highest is the highest level that a released arena had.
var highest atomic.Int64

// HighWater returns the most bytes that a single arena has lent at one time, of
// those released since HighWater was called before.
func HighWater() int64 { return highest.Swap(0) * 8 }

var pool = sync.Pool{New: func() any { return new(Arena) }}

// Acquire returns an empty arena.
func Acquire() *Arena { return pool.Get().(*Arena) }

// Release gives the arena back; slices taken from it are no longer valid. A
// slab that proved too small is replaced, so the next use of this size fits.
func (a *Arena) Release() {
	poison(a.slab[:a.used])
	if a.most > len(a.slab) {
		a.slab = make([]float64, a.most*5/4+line)
	}
	for m, h := int64(a.most), highest.Load(); m > h && !highest.CompareAndSwap(h, m); {
		h = highest.Load()
	}
	a.used, a.over, a.most = 0, 0, 0
	pool.Put(a)
}

// Mark returns the present level, for Reset.
func (a *Arena) Mark() int { return a.used + a.over }

// Reset returns the slices taken since Mark.
func (a *Arena) Reset(mark int) {
	if mark < a.used {
		poison(a.slab[mark:a.used])
		a.used = mark
	}
	a.over = max(mark-a.used, 0)
}

// Element is what an arena lends: numbers, places and bits of hashes.
type Element interface {
	float32 | float64 | int32 | uint64
}

// Take returns n elements with undefined contents, aligned to a cache line.
func Take[T Element](a *Arena, n int) []T {
	if n == 0 {
		return nil
	}
	var z T
	words := (n*int(unsafe.Sizeof(z)) + 7) / 8
	words = (words + line - 1) &^ (line - 1)
	if len(a.slab) == 0 {
		a.slab = make([]float64, max(words+line, 1<<12))
	}
	if a.used == 0 {
		// The slab's own start may be unaligned.
		a.used = int(-uintptr(unsafe.Pointer(&a.slab[0]))%64) / 8
	}
	if a.over > 0 || a.used+words > len(a.slab) {
		a.over += words
		a.most = max(a.most, a.used+a.over)
		return make([]T, n)
	}
	p := unsafe.Pointer(&a.slab[a.used])
	a.used += words
	a.most = max(a.most, a.used)
	return unsafe.Slice((*T)(p), n)
}

// Zeros is Take with the elements set to zero.
func Zeros[T Element](a *Arena, n int) []T {
	s := Take[T](a, n)
	clear(s)
	return s
}
