package arena

import (
	"math/bits"
	"sync"
)

// largeWords is the size from which slabs are shared by all arenas: 1 MiB. The memory of large slabs
// is then what arenas use at the same time, whichever of them it is.
const largeWords = 1 << 17

// baseWords is the size up to which the first slab of an arena grows.
const baseWords = largeWords - lineWords

// stepsPerDouble is the number of sizes of large slabs within a factor of 2.
const stepsPerDouble = 4

// large holds free slabs by size.
var large [stepsPerDouble * 64]sync.Pool

// largeSize returns the size of slabs for words, and its number among the sizes. Sizes have room
// for the alignment of a slice of a power of 2.
func largeSize(words int) (size, number int) {
	words -= lineWords
	shift := bits.Len(uint(words-1)) - bits.Len(stepsPerDouble)
	steps := (words-1)>>shift + 1 // above stepsPerDouble, at most 2·stepsPerDouble
	return steps<<shift + lineWords, shift*stepsPerDouble + steps - stepsPerDouble - 1
}

// takeLarge returns a slab of at least words, which are largeWords or more.
func takeLarge(words int) *slab {
	size, number := largeSize(words)
	if s, _ := large[number].Get().(*slab); s != nil {
		return s
	}
	return &slab{make([]float64, size)}
}

// putLarge makes a large slab free. Other slabs are left to the garbage collector.
func putLarge(s *slab) {
	if s.size() >= largeWords {
		_, number := largeSize(len(s.words))
		large[number].Put(s)
	}
}
