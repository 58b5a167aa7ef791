// Package arena hands out scratch memory from slabs that are used again, so that hot paths do not
// allocate. Package internal/scratch makes matrices from it.
package arena

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Arena allocates slices from its last slab. It is not safe for concurrent use.
type Arena struct {
	slab          *slab      // nil: none yet
	usedWords     int        // words of slab that are taken
	fullSlabs     []fullSlab // earlier slabs
	fullSlabWords int        // words of fullSlabs that are taken
	spare         *slab      // largest empty slab, for reuse; nil: none
	maxLevel      int        // highest level of Mark since Acquire
}

// slab is memory without pointers, which the garbage collector does not scan.
type slab struct{ words []float64 }

// size returns the number of words; 0 for nil.
func (s *slab) size() int {
	if s == nil {
		return 0
	}
	return len(s.words)
}

// fullSlab is an earlier slab that had no room for the next slice.
type fullSlab struct {
	*slab
	usedWords int
}

const lineWords = 8 // float64s in a cache line of 64 bytes

// highWater is the highest level of released arenas, in words.
var highWater atomic.Int64

// HighWater returns the largest number of bytes that one arena held at one time. It counts the
// arenas that were released since the previous call.
func HighWater() int64 { return highWater.Swap(0) * 8 }

var pool = sync.Pool{New: func() any { return new(Arena) }}

// Acquire returns an empty arena.
func Acquire() *Arena { return pool.Get().(*Arena) }

// Release returns the arena to the pool and invalidates all its slices. If the arena has several
// slabs, one slab that is large enough for the same use replaces them, up to baseWords. Larger
// slabs go to a pool for their size.
func (a *Arena) Release() {
	a.Reset(0)
	if a.slab.size() >= largeWords {
		putLarge(a.slab)
		a.slab = nil
	}
	if n := a.slab.size(); a.maxLevel > n && n < baseWords {
		a.slab = &slab{make([]float64, min(a.maxLevel*5/4+lineWords, baseWords))}
	}
	putLarge(a.spare)
	for m, h := int64(a.maxLevel), highWater.Load(); m > h && !highWater.CompareAndSwap(h, m); {
		h = highWater.Load()
	}
	a.maxLevel, a.spare = 0, nil
	pool.Put(a)
}

// New returns an arena with a slab that has room for slices of so many Words together.
func New(words int) *Arena { return &Arena{slab: &slab{make([]float64, words+lineWords)}} }

// Size returns the words of all slabs that the arena holds, taken or not.
func (a *Arena) Size() int {
	words := a.slab.size() + a.spare.size()
	for _, s := range a.fullSlabs {
		words += s.size()
	}
	return words
}

// Mark returns the current level, for Reset.
func (a *Arena) Mark() int { return a.fullSlabWords + a.usedWords }

// Reset frees all slices taken since mark, and invalidates them.
func (a *Arena) Reset(mark int) {
	for mark <= a.fullSlabWords && len(a.fullSlabs) > 0 {
		poison(a.slab.words[:a.usedWords])
		if a.slab.size() > a.spare.size() {
			a.slab, a.spare = a.spare, a.slab
		}
		putLarge(a.slab)
		last := len(a.fullSlabs) - 1
		a.slab, a.usedWords = a.fullSlabs[last].slab, a.fullSlabs[last].usedWords
		a.fullSlabs[last] = fullSlab{} // free the memory
		a.fullSlabs, a.fullSlabWords = a.fullSlabs[:last], a.fullSlabWords-a.usedWords
	}
	if mark -= a.fullSlabWords; mark < a.usedWords {
		poison(a.slab.words[mark:a.usedWords])
		a.usedWords = mark
	}
}

// Element constrains the element types of slices.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | uint8 | uint16 | uint64
}

// Take returns a slice [n] with undefined contents, aligned to a cache line.
func Take[T Element](a *Arena, n int) []T {
	if n == 0 {
		return nil
	}
	words := Words[T](n)
	a.alignStart()
	if a.usedWords+words > a.slab.size() {
		a.addSlab(words + lineWords)
		a.alignStart()
	}
	p := unsafe.Pointer(&a.slab.words[a.usedWords])
	a.usedWords += words
	a.maxLevel = max(a.maxLevel, a.Mark())
	return unsafe.Slice((*T)(p), n)
}

// Words returns the words that Take takes for a slice [n]: whole cache lines.
func Words[T Element](n int) int {
	var z T
	words := (n*int(unsafe.Sizeof(z)) + 7) / 8
	return (words + lineWords - 1) &^ (lineWords - 1)
}

// alignStart aligns the start of an empty slab to a cache line.
func (a *Arena) alignStart() {
	if a.usedWords == 0 && a.slab != nil {
		a.usedWords = int(-uintptr(unsafe.Pointer(&a.slab.words[0]))%64) / 8
	}
}

// addSlab adds a slab with room for words. While slabs are small, it is at least as large as all
// earlier slabs together. After a slab of baseWords or more it is large.
func (a *Arena) addSlab(words int) {
	words = max(words, 1<<12)
	if a.slab != nil {
		a.fullSlabs = append(a.fullSlabs, fullSlab{a.slab, a.usedWords})
		a.fullSlabWords += a.usedWords
		words = max(words, min(a.fullSlabWords, largeWords))
	}
	if a.slab.size() >= baseWords {
		words = max(words, largeWords)
	}
	switch {
	case a.spare.size() >= words:
		a.slab, a.spare = a.spare, nil
	case words >= largeWords:
		a.slab = takeLarge(words)
	default:
		a.slab = &slab{make([]float64, words)}
	}
	a.usedWords = 0
}

// TakeZeros returns a slice [n] of zeros, aligned to a cache line.
func TakeZeros[T Element](a *Arena, n int) []T {
	s := Take[T](a, n)
	clear(s)
	return s
}

// Of is an Arena for slices of one element type.
type Of[T Element] struct{ *Arena }

// Take returns a slice [n] with undefined contents.
func (a Of[T]) Take(n int) []T { return Take[T](a.Arena, n) }
