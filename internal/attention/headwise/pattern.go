package headwise

import (
	"sync"

	"github.com/farfield-ml/farfield/internal/scratch"
)

// Pattern is a sparse attention pattern. It is a list of parts, each with some queries and some
// keys. A pair that is in several parts counts once for each. A few parts with long ranges of
// keys are fastest, because ranges are computed together.
type Pattern struct {
	patches []patch
	bounds  []int32
}

// patch is a part of a Pattern: query number a sees keys number lo[a] ≤ c < hi[a].
type patch struct {
	queries, keys RowSet
	bounds        int // index of lo in Pattern.bounds; hi follows
}

// RowSet selects N rows of a matrix. Row number i of the set is row
//
//	First + (i / Run)·Step + i mod Run
//
// of the matrix, or First + List[i] if List is set.
type RowSet struct {
	First, N  int
	Run, Step int     // Run 0: consecutive rows
	List      []int32 // nil: rows by the formula
}

// Range returns n consecutive rows, starting with first.
func Range(first, n int) RowSet { return RowSet{First: first, N: n} }

// EveryNth returns the rows first, first+step, first+2·step and so on below m.
func EveryNth(step, first, m int) RowSet {
	n := 0
	if first < m {
		n = (m - first + step - 1) / step
	}
	return RowSet{First: first, N: n, Run: 1, Step: step}
}

// RowAt returns the index in the matrix of row number i of the set.
func (p *RowSet) RowAt(i int) int {
	switch {
	case p.List != nil:
		return p.First + int(p.List[i])
	case p.Run == 0:
		return p.First + i
	}
	return p.First + i/p.Run*p.Step + i%p.Run
}

// rowStep returns the distance between neighbouring rows, and whether it is the same for all.
func (p *RowSet) rowStep() (step int, even bool) {
	switch {
	case p.List != nil || p.Run > 1:
		return 0, false
	case p.Run == 0:
		return 1, true
	}
	return p.Step, true
}

var patterns = sync.Pool{New: func() any { return new(Pattern) }}

// NewPattern returns an empty pattern, in memory of a released one if there is one.
func NewPattern() *Pattern {
	p := patterns.Get().(*Pattern)
	p.patches, p.bounds = p.patches[:0], p.bounds[:0]
	return p
}

// Release lets NewPattern reuse the memory of p.
func (p *Pattern) Release() {
	clear(p.patches)
	patterns.Put(p)
}

// AddPart adds a part with the given queries and keys. The caller must fill the returned bounds
// before it adds the next part: query number a of the part sees its keys number lo[a] ≤ c <
// hi[a]. Bounds may lie outside of the keys.
func (p *Pattern) AddPart(queries, keys RowSet) (lo, hi []int32) {
	at, n := len(p.bounds), queries.N
	p.bounds = scratch.Grow(p.bounds, 2*n)
	p.patches = append(p.patches, patch{queries, keys, at})
	return p.bounds[at:][:n], p.bounds[at+n:][:n]
}

func (p *Pattern) boundsOf(x *patch) (lo, hi []int32) {
	n := x.queries.N
	return p.bounds[x.bounds:][:n], p.bounds[x.bounds+n:][:n]
}

// CountPairs returns the number of pairs of all parts.
func (p *Pattern) CountPairs() int {
	n := 0
	for i := range p.patches {
		x := &p.patches[i]
		lo, hi := p.boundsOf(x)
		for a := range lo {
			n += max(min(int(hi[a]), x.keys.N)-max(int(lo[a]), 0), 0)
		}
	}
	return n
}

// CountBounds returns the number of elements of lo and hi of all parts together.
func (p *Pattern) CountBounds() int { return len(p.bounds) }
