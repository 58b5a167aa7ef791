// Package arena provides scratch memory from reused slabs, so that hot paths do not allocate.
package arena

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Arena allocates slices from the last of its slabs. It is not safe for concurrent use.
type Arena struct {
	slab          []float64 // without pointers, so not scanned by the garbage collector
	usedWords     int       // words of slab that are taken
	fullSlabs     []slab    // earlier slabs
	fullSlabWords int       // words of fullSlabs that are taken
	spare         []float64 // largest empty slab, for reuse
	maxLevel      int       // highest level since Acquire
}

// slab is an earlier slab that had no room for the next slice.
type slab struct {
	words     []float64
	usedWords int
}

const lineWords = 8 // float64s in a cache line of 64 bytes

// highWater is the highest level of released arenas, in words.
var highWater atomic.Int64

// HighWater returns the maximum number of bytes taken from one arena at a time, among all arenas
// released since the previous call.
func HighWater() int64 { return highWater.Swap(0) * 8 }

var pool = sync.Pool{New: func() any { return new(Arena) }}

// Acquire returns an empty arena.
func Acquire() *Arena { return pool.Get().(*Arena) }

// Release returns the arena to the pool and invalidates its slices. Several slabs are replaced by one
// that fits the same use.
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

// Mark returns the current level, for Reset.
func (a *Arena) Mark() int { return a.fullSlabWords + a.usedWords }

// Reset frees all slices taken since mark, and invalidates them.
func (a *Arena) Reset(mark int) {
	for mark <= a.fullSlabWords && len(a.fullSlabs) > 0 {
		poison(a.slab[:a.usedWords])
		if len(a.slab) > len(a.spare) {
			a.spare = a.slab
		}
		last := len(a.fullSlabs) - 1
		a.slab, a.usedWords = a.fullSlabs[last].words, a.fullSlabs[last].usedWords
		a.fullSlabs[last] = slab{} // free the memory
		a.fullSlabs, a.fullSlabWords = a.fullSlabs[:last], a.fullSlabWords-a.usedWords
	}
	if mark -= a.fullSlabWords; mark < a.usedWords {
		poison(a.slab[mark:a.usedWords])
		a.usedWords = mark
	}
}

// Element constrains the element types of slices.
type Element interface {
	float32 | float64 | int32 | uint64
}

// Take returns a slice [n] with undefined contents, aligned to a cache line.
func Take[T Element](a *Arena, n int) []T {
	if n == 0 {
		return nil
	}
	var z T
	words := (n*int(unsafe.Sizeof(z)) + 7) / 8
	words = (words + lineWords - 1) &^ (lineWords - 1)
	a.alignStart()
	if a.usedWords+words > len(a.slab) {
		a.addSlab(words + lineWords)
		a.alignStart()
	}
	p := unsafe.Pointer(&a.slab[a.usedWords])
	a.usedWords += words
	a.maxLevel = max(a.maxLevel, a.Mark())
	return unsafe.Slice((*T)(p), n)
}

// alignStart aligns the start of an empty slab to a cache line.
func (a *Arena) alignStart() {
	if a.usedWords == 0 && len(a.slab) > 0 {
		a.usedWords = int(-uintptr(unsafe.Pointer(&a.slab[0]))%64) / 8
	}
}

// addSlab adds a slab with room for words, at least as large as all earlier slabs together.
func (a *Arena) addSlab(words int) {
	if len(a.slab) > 0 {
		a.fullSlabs = append(a.fullSlabs, slab{a.slab, a.usedWords})
		a.fullSlabWords += a.usedWords
	}
	if len(a.spare) >= words {
		a.slab, a.spare = a.spare, nil
	} else {
		a.slab = make([]float64, max(words, a.fullSlabWords, 1<<12))
	}
	a.usedWords = 0
}

// TakeZeros returns a slice [n] of zeros, aligned to a cache line.
func TakeZeros[T Element](a *Arena, n int) []T {
	s := Take[T](a, n)
	clear(s)
	return s
}
