// Package arena lends scratch memory: slabs that are kept and reused, so that
// hot paths do not allocate.
package arena

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Arena hands out slices from slabs, the last of which it lends from. It belongs to
// one goroutine.
type Arena struct {
	slab  []float64 // one element type keeps the garbage collector out of it
	used  int       // words of it that are lent
	full  []slab    // those before it
	below int       // words that they have lent
	spare []float64 // one that all was given back of
	most  int       // highest level since Acquire
}

// slab is one that has no room for what was wanted next.
type slab struct {
	words []float64
	used  int
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

// Release gives the arena back; slices taken from it are no longer valid. Slabs
// that proved too small are replaced by one, so the next use of this size fits.
func (a *Arena) Release() {
	a.Reset(0)
	if a.most > len(a.slab) {
		a.slab = make([]float64, a.most*5/4+line)
	}
	for m, h := int64(a.most), highest.Load(); m > h && !highest.CompareAndSwap(h, m); {
		h = highest.Load()
	}
	a.most, a.spare = 0, nil
	pool.Put(a)
}

// Mark returns the present level, for Reset.
func (a *Arena) Mark() int { return a.below + a.used }

// Reset returns the slices taken since Mark.
func (a *Arena) Reset(mark int) {
	for mark <= a.below && len(a.full) > 0 {
		poison(a.slab[:a.used])
		if len(a.slab) > len(a.spare) {
			a.spare = a.slab
		}
		last := len(a.full) - 1
		a.slab, a.used = a.full[last].words, a.full[last].used
		a.full[last] = slab{} // nothing keeps it
		a.full, a.below = a.full[:last], a.below-a.used
	}
	if mark -= a.below; mark < a.used {
		poison(a.slab[mark:a.used])
		a.used = mark
	}
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
	a.align()
	if a.used+words > len(a.slab) {
		a.open(words + line)
		a.align()
	}
	p := unsafe.Pointer(&a.slab[a.used])
	a.used += words
	a.most = max(a.most, a.Mark())
	return unsafe.Slice((*T)(p), n)
}

// align passes over the start of an empty slab up to a cache line.
func (a *Arena) align() {
	if a.used == 0 && len(a.slab) > 0 {
		a.used = int(-uintptr(unsafe.Pointer(&a.slab[0]))%64) / 8
	}
}

// open has another slab, with room for so many words, as large as those before it
// together.
func (a *Arena) open(words int) {
	if len(a.slab) > 0 {
		a.full = append(a.full, slab{a.slab, a.used})
		a.below += a.used
	}
	if len(a.spare) >= words {
		a.slab, a.spare = a.spare, nil
	} else {
		a.slab = make([]float64, max(words, a.below, 1<<12))
	}
	a.used = 0
}

// Zeros is Take with the elements set to zero.
func Zeros[T Element](a *Arena, n int) []T {
	s := Take[T](a, n)
	clear(s)
	return s
}
