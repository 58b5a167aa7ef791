package attention

import (
	"sync"

	"github.com/farfield-ml/farfield/internal/scratch"
)

// Pairs are the pairs of queries and keys of a head that meet: parts, in each of
// which some queries see some keys. A pair that is in several parts counts as
// often. Parts that suit are few and have rows that see long stretches of the
// part's keys, since those are what is computed together.
type Pairs struct {
	patches []patch
	bounds  []int32
}

// patch is queries that see keys: number a sees keys number lo[a] ≤ c < hi[a].
type patch struct {
	queries, keys Places
	bounds        int // lo begins there in Pairs.bounds, and hi behind it
}

// Places are N rows of a matrix. Row number i is
//
//	First + (i / Run)·Step + i mod Run
//
// or First + List[i]. They are all within the matrix.
type Places struct {
	First, N  int
	Run, Step int     // 0: one row after the other
	List      []int32 // nil: by the formula
}

// Stretch is n rows from the first on.
func Stretch(first, n int) Places { return Places{First: first, N: n} }

// Every is every step-th of m rows from the first on.
func Every(step, first, m int) Places {
	n := 0
	if first < m {
		n = (m - first + step - 1) / step
	}
	return Places{First: first, N: n, Run: 1, Step: step}
}

// At returns row number i.
func (p *Places) At(i int) int {
	switch {
	case p.List != nil:
		return p.First + int(p.List[i])
	case p.Run == 0:
		return p.First + i
	}
	return p.First + i/p.Run*p.Step + i%p.Run
}

// step returns how far the rows lie apart, if they all lie as far.
func (p *Places) step() (step int, even bool) {
	switch {
	case p.List != nil || p.Run > 1:
		return 0, false
	case p.Run == 0:
		return 1, true
	}
	return p.Step, true
}

var pairs = sync.Pool{New: func() any { return new(Pairs) }}

// NewPairs returns no pairs, in memory of earlier ones.
func NewPairs() *Pairs {
	p := pairs.Get().(*Pairs)
	p.patches, p.bounds = p.patches[:0], p.bounds[:0]
	return p
}

// Release keeps the memory of p for other pairs.
func (p *Pairs) Release() {
	clear(p.patches)
	pairs.Put(p)
}

// Add adds a part. It returns its bounds to be filled before the next one is
// added: query number a sees keys number lo[a] ≤ c < hi[a]. They may lie outside
// of the keys.
func (p *Pairs) Add(queries, keys Places) (lo, hi []int32) {
	at, n := len(p.bounds), queries.N
	p.bounds = scratch.Grow(p.bounds, 2*n)
	p.patches = append(p.patches, patch{queries, keys, at})
	return p.bounds[at:][:n], p.bounds[at+n:][:n]
}

func (p *Pairs) of(x *patch) (lo, hi []int32) {
	n := x.queries.N
	return p.bounds[x.bounds:][:n], p.bounds[x.bounds+n:][:n]
}

// Count returns the number of pairs.
func (p *Pairs) Count() int {
	n := 0
	for i := range p.patches {
		x := &p.patches[i]
		lo, hi := p.of(x)
		for a := range lo {
			n += max(min(int(hi[a]), x.keys.N)-max(int(lo[a]), 0), 0)
		}
	}
	return n
}

// Bounds returns how many numbers say what the parts' queries see.
func (p *Pairs) Bounds() int { return len(p.bounds) }
