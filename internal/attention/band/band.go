// Package band computes the softmax of a sliding window. Each query sees a range of keys whose
// ends never decrease from one query to the next. Packages headtask and hybrid decide which
// rows belong to a window, and compute the linear tail beside it.
package band

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// Block is n queries and the nk keys that at least one of them sees. Results for a query depend
// only on its own keys, not on other queries or on the position of its keys in the block.
type Block struct {
	Table *kernel.Table[float]
	Arena *arena.Arena // of scratch memory

	Queries      []float // [n,LDQ], zero from D to kernel.Pad(D) for Backward
	LDQ          int
	Keys         []float // transposed [D,LDK]; elements beyond the keys are read, but have no effect
	LDK          int     // at least kernel.Pad(nk)
	Values       []float // [nk,LDV], zero beyond Dv and where a key is masked
	LDV          int     // at least kernel.Pad(Dv)
	D, Dv        int
	Factor       float   // multiplies scores to give exponents of 2; above 0
	Starts, Ends []int32 // [n] query r sees keys Starts[r] ≤ j < Ends[r]
	Mask         []bool  // [nk] unmasked keys; nil: all
	Keep         []bool  // pairs: Keep[r*KeepStride+j]; nil: all
	KeepStride   int
	Rates        []float // [nk] log-decay of keys; nil: none
	SlowestRate  float64 // lower bound of sums of Rates

	finite        bool // all rows that mix reads are finite
	valuesChecked bool // finite is of Values
}

// TileRows returns the number of queries of a tile for rows of width d. A tile contains all
// keys that any of its queries sees. Low tiles compute fewer products in vain, high tiles need
// fewer calls.
func TileRows(d int) int {
	if d <= 2*kernel.Lanes {
		return kernel.Lanes
	}
	return 2 * kernel.Lanes
}

// largestSum is the sum of weights from which on a row's power is set anew.
const largestSum = 1 << 40

// tile is rows r0 ≤ r < r0+n of a block against keys first ≤ j < first+cols. Rows of weights lie ld apart.
type tile struct{ r0, n, first, cols, ld int }

// tileAt returns the tile of at most most rows that begins with row r0. Its first key is a multiple of
// kernel.Lanes.
func (b *Block) tileAt(r0, most int) tile {
	n := min(most, len(b.Ends)-r0)
	first := int(b.Starts[r0]) &^ (kernel.Lanes - 1)
	x := tile{r0: r0, n: n, first: first, cols: int(b.Ends[r0+n-1]) - first}
	if x.ld = kernel.Pad(max(x.cols, 0)); x.ld%(8*kernel.Lanes) == 0 {
		x.ld += kernel.Lanes // lines of a column spread over the sets of a cache
	}
	return x
}

// bounds returns the columns lo ≤ c < hi that row r of a tile sees.
func (b *Block) bounds(x *tile, r int) (lo, hi int) {
	return int(b.Starts[x.r0+r]) - x.first, int(b.Ends[x.r0+r]) - x.first
}

// isPlain reports whether queries see all keys of their range, without decay.
func (b *Block) isPlain() bool { return b.Mask == nil && b.Keep == nil && b.Rates == nil }

// countDiagonal returns the number of rows from r on whose bounds move by one column from row to row.
func (b *Block) countDiagonal(x *tile, r int) int {
	if !b.isPlain() {
		return 1
	}
	lo, hi := b.Starts[x.r0+r:][:x.n-r], b.Ends[x.r0+r:][:x.n-r]
	count := 1
	for count < len(lo) && lo[count] == lo[0]+int32(count) && hi[count] == hi[0]+int32(count) {
		count++
	}
	return count
}

// sees reports whether row r of the block sees key j of its range.
func (b *Block) sees(r, j int) bool {
	return (b.Mask == nil || b.Mask[j]) && (b.Keep == nil || b.Keep[r*b.KeepStride+j])
}

// Attend sets rows of out [n,Dv], stride apart, to weighted means of values, and sums [n] to
// the sums of weights. Both are zero for a query that sees no key.
func (b *Block) Attend(out []float, stride int, sums rowscale.Sums) {
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	width := kernel.Pad(b.Dv)
	most := TileRows(b.D)
	size := min(most, len(b.Ends))
	o, over := arena.Take[float](b.Arena, size*width), arena.Take[float](b.Arena, size)
	if !b.valuesChecked {
		b.setFinite(b.Values, b.LDV, width)
		b.valuesChecked = true
	}
	for r0 := 0; r0 < len(b.Ends); r0 += most {
		x := b.tileAt(r0, most)
		sums := sums.Slice(r0, r0+x.n)
		to := out[r0*stride:]
		if x.cols <= 0 {
			sums.Clear()
			b.Table.ClearRows(to, stride, x.n, b.Dv)
			continue
		}
		mark := b.Arena.Mark()
		s := arena.Take[float](b.Arena, x.n*x.ld)
		b.scores(&x, s)
		b.weigh(&x, s, sums)
		b.mix(&x, s, b.Values, b.LDV, width, o, width)
		for r, sum := range sums.Sum {
			if over[r] = 0; sum != 0 {
				over[r] = 1 / sum
			}
		}
		b.Table.ScaleRows(to, stride, o, width, b.Dv, over[:x.n])
		b.Arena.Reset(mark)
	}
}

// scores sets s to the scores of a tile.
func (b *Block) scores(x *tile, s []float) {
	b.Table.Block(x.n, kernel.Pad(x.cols), b.D, b.Queries[x.r0*b.LDQ:], b.LDQ, 1, b.Keys[x.first:], b.LDK, s, x.ld, false)
}

// weigh turns scores into weights over a power of 2 of each row, and what a row does not see into 0.
func (b *Block) weigh(x *tile, s []float, sums rowscale.Sums) {
	sums.Clear()
	for r := 0; r < x.n; {
		n := b.countDiagonal(x, r)
		lo, hi := b.bounds(x, r)
		b.clearOutside(x, s, r, n)
		if hi > lo {
			b.exponentials(x, s, r, n, sums.Slice(r, r+n))
		}
		r += n
	}
}

// clearOutside sets to 0 what n rows of a tile from r on do not see, whose bounds move by one column from row to row.
func (b *Block) clearOutside(x *tile, s []float, r, n int) {
	lo, hi := b.bounds(x, r)
	first, last := s[r*x.ld:], s[(r+n-1)*x.ld:]
	clear(first[:lo])
	// Between the ends of two rows lies the same number of elements.
	b.Table.ClearRows(first[hi:], x.ld+1, n-1, x.ld+1-(hi-lo))
	clear(last[hi+n-1 : x.ld])
}

// exponentials is weigh for the columns that n rows from r on see.
func (b *Block) exponentials(x *tile, s []float, r, n int, sums rowscale.Sums) {
	lo, hi := b.bounds(x, r)
	cols, rs := hi-lo, x.ld+1
	s = s[r*x.ld+lo:]
	if !b.isPlain() {
		b.adjust(x, r, s[:cols])
	}
	for i := range n {
		row := s[i*rs:][:cols]
		power := b.powerOf(row, row[cols-1])
		rowscale.Lower(row, power.Base)
		sums.Base[i], sums.Top[i] = power.Base, power.Top
	}
	b.Table.ExpRows(s, rs, cols, b.Factor, sums.Top, sums.Sum)
	for i, sum := range sums.Sum {
		if !(sum < largestSum) {
			b.redo(x, r+i, s[i*rs:][:cols], sums.Slice(i, i+1))
		}
	}
}

// powerOf returns the power of a row of scores: of score y, or of the largest one where y is not finite; 0 if all
// are -Inf.
func (b *Block) powerOf(row []float, y float) rowscale.Power {
	if y-y != 0 {
		if y = b.Table.Max(row); math.IsInf(float64(y), -1) {
			return rowscale.Power{}
		}
	}
	return rowscale.PowerOf(y, b.Factor, 0)
}

// redo computes the weights of one row over the power of the largest, and their sum.
func (b *Block) redo(x *tile, r int, row []float, sum rowscale.Sums) {
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	s := arena.Take[float](b.Arena, x.ld)
	one := tile{r0: x.r0 + r, n: 1, first: x.first, cols: x.cols, ld: x.ld}
	b.scores(&one, s)
	lo, hi := b.bounds(x, r)
	copy(row, s[lo:hi])
	if !b.isPlain() {
		b.adjust(x, r, row)
	}
	power := b.powerOf(row, float(math.NaN()))
	rowscale.Lower(row, power.Base)
	sum.Base[0], sum.Top[0], sum.Sum[0] = power.Base, power.Top, 0
	b.Table.ExpRows(row, x.ld, len(row), b.Factor, sum.Top, sum.Sum)
}

// Weights sets weights [Ends[r]-Starts[r]] to the weights of the keys that query r sees, and
// sum [1] to their sum.
func (b *Block) Weights(r int, weights []float, sum rowscale.Sums) {
	if sum.Clear(); len(weights) == 0 {
		return
	}
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	x := b.tileAt(r, 1)
	s := arena.Take[float](b.Arena, x.ld)
	b.scores(&x, s)
	b.weigh(&x, s, sum)
	lo, hi := b.bounds(&x, 0)
	copy(weights, s[lo:hi])
}

// adjust adds to the scores of the range of row r the logarithms of their decay, which is summed back from the last
// key that the row sees, and sets scores of keys that it does not see to -Inf.
func (b *Block) adjust(x *tile, r int, row []float) {
	lo, _ := b.bounds(x, r)
	first := x.first + lo
	if b.Rates != nil {
		last := len(row) - 1
		for last >= 0 && !b.sees(x.r0+r, first+last) {
			last--
		}
		var sum float64
		for c := last; c >= 0; c-- {
			row[c] += float(sum)
			sum = max(sum+float64(b.Rates[first+c]), b.SlowestRate)
		}
	}
	for c := range row {
		if !b.sees(x.r0+r, first+c) {
			row[c] = float(math.Inf(-1))
		}
	}
}

// setFinite finds out whether all rows of x, which lie ld apart, are finite.
func (b *Block) setFinite(x []float, ld, width int) {
	if n := len(b.Ends); n > 0 {
		lo := int(b.Starts[0]) &^ (kernel.Lanes - 1) // a tile begins there
		b.finite = b.findFinite(x[min(lo*ld, len(x)):], ld, int(b.Ends[n-1])-lo, width) == nil
	}
}

// findFinite returns for each of n rows a number that is 0 where the row is finite; nil: all are.
func (b *Block) findFinite(x []float, ld, n, width int) []float {
	if n <= 0 {
		return nil
	}
	// A number times zero is zero, if it is finite.
	zeros, none := arena.Take[float](b.Arena, n), arena.TakeZeros[float](b.Arena, width)
	b.Table.Dots(zeros, x, ld, none)
	for _, z := range zeros {
		if z != 0 {
			return zeros
		}
	}
	return nil
}

// mix sets rows of o [n,width] to weights w of a tile times rows of y. A row of y that is not finite is added only
// to the rows that see it, since 0·∞ is not 0.
func (b *Block) mix(x *tile, w, y []float, ldy, width int, o []float, ldo int) {
	y = y[x.first*ldy:]
	if b.finite {
		b.product(x, w, y, ldy, width, o, ldo)
		return
	}
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	lo, _ := b.bounds(x, 0)
	zeros := b.findFinite(y[lo*ldy:], ldy, x.cols-lo, width)
	if zeros == nil && lo == 0 {
		b.product(x, w, y, ldy, width, o, ldo)
		return
	}
	finite := arena.TakeZeros[float](b.Arena, x.cols*width)
	for c := lo; c < x.cols; c++ {
		if zeros == nil || zeros[c-lo] == 0 {
			copy(finite[c*width:][:width], y[c*ldy:])
		}
	}
	b.product(x, w, finite, width, width, o, ldo)
	for c := range zeros {
		if zeros[c] == 0 {
			continue
		}
		for r := range x.n {
			if from, end := b.bounds(x, r); lo+c >= from && lo+c < end && b.sees(x.r0+r, x.first+lo+c) {
				b.Table.Axpy(o[r*ldo:][:width], w[r*x.ld+lo+c], y[(lo+c)*ldy:])
			}
		}
	}
}

// product is mix for finite rows.
func (b *Block) product(x *tile, w, y []float, ldy, width int, o []float, ldo int) {
	if x.n == 1 {
		clear(o[:width])
		b.Table.Mix(o[:width], w[:x.cols], x.cols, y, ldy, nil, 0)
		return
	}
	b.Table.Block(x.n, width, x.cols, w, x.ld, 1, y, ldy, o, ldo, false)
}
