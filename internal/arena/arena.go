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
	slab      []float64 // one element type keeps the garbage collector out of it
	used      int       // words of it that are lent
	fullSlabs []slab    // those before it
	fullUsed  int       // words that they have lent
	spare     []float64 // one that all was given back of
	maxLevel  int       // highest level since Acquire
}

// slab is one that has no room for what was wanted next.
type slab struct {
	words []float64
	used  int
}

const lineWords = 8 // float64s in a cache line of 64 bytes

// highWater is the highest level that a released arena had.
var highWater atomic.Int64

// HighWater returns the most bytes that a single arena has lent at one time, of
// those released since HighWater was called before.
func HighWater() int64 { return highWater.Swap(0) * 8 }

var pool = sync.Pool{New: func() any { return new(Arena) }}

// Acquire returns an empty arena.
func Acquire() *Arena { return pool.Get().(*Arena) }

// Release gives the arena back; slices taken from it are no longer valid. Slabs
// that proved too small are replaced by one, so the next use of this size fits.
func (a *Arena) Release() {
	a.Reset(0)
	if a.maxLevel > len(a.slab) {
		a.slab = make([]float64, a.maxLevel*5/4+lineWords)
	}
	for m, h := int64(a.maxLevel), highWater.Load(); m > h && !highWater.CompareAndSwap(h, m); {
		h = highWater.Load()
	}
	a.maxLevel, a.spare = 0, nil
	pool.Put(a)
}

// Mark returns the present level, for Reset.
func (a *Arena) Mark() int { return a.fullUsed + a.used }

// Reset returns the slices taken since Mark.
func (a *Arena) Reset(mark int) {
	for mark <= a.fullUsed && len(a.fullSlabs) > 0 {
		poison(a.slab[:a.used])
		if len(a.slab) > len(a.spare) {
			a.spare = a.slab
		}
		last := len(a.fullSlabs) - 1
		a.slab, a.used = a.fullSlabs[last].words, a.fullSlabs[last].used
		a.fullSlabs[last] = slab{} // nothing keeps it
		a.fullSlabs, a.fullUsed = a.fullSlabs[:last], a.fullUsed-a.used
	}
	if mark -= a.fullUsed; mark < a.used {
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
	words = (words + lineWords - 1) &^ (lineWords - 1)
	a.alignStart()
	if a.used+words > len(a.slab) {
		a.addSlab(words + lineWords)
		a.alignStart()
	}
	p := unsafe.Pointer(&a.slab[a.used])
	a.used += words
	a.maxLevel = max(a.maxLevel, a.Mark())
	return unsafe.Slice((*T)(p), n)
}

// alignStart passes over the start of an empty slab up to a cache line.
func (a *Arena) alignStart() {
	if a.used == 0 && len(a.slab) > 0 {
		a.used = int(-uintptr(unsafe.Pointer(&a.slab[0]))%64) / 8
	}
}

// addSlab has another slab, with room for so many words, as large as those before it
// together.
func (a *Arena) addSlab(words int) {
	if len(a.slab) > 0 {
		a.fullSlabs = append(a.fullSlabs, slab{a.slab, a.used})
		a.fullUsed += a.used
	}
	if len(a.spare) >= words {
		a.slab, a.spare = a.spare, nil
	} else {
		a.slab = make([]float64, max(words, a.fullUsed, 1<<12))
	}
	a.used = 0
}

// TakeZeros is Take with the elements set to zero.
func TakeZeros[T Element](a *Arena, n int) []T {
	s := Take[T](a, n)
	clear(s)
	return s
}
