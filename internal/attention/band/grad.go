package band

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// Grad holds the inputs and results of Backward for a block. The weights are 2^(Factor·(score -
// Base) - Top).
type Grad struct {
	KeyRows []float // keys [nk,LDQ], zero from D to kernel.Pad(D)
	ValuesT []float // values, transposed [Dv,LDK]

	DOut      []float // [n,LDO] gradients of means, zero from Dv to kernel.Pad(Dv)
	LDO       int
	Delta     []float // [n] -(DOut·mean)
	Top, Base []float // [n]; a nil Base means 0. Top of a query that sees no key must be finite

	DQueries []float // [n,LDQ], overwritten
	DKeys    []float // [nk,LDQ], added to
	DValues  []float // [nk,LDV], added to
	DRates   []float // [kernel.Pad(nk)] sums of weights times Delta, added to; nil: not wanted
	LDV      int     // stride of DValues, at least kernel.Pad(Dv)
}

// Backward computes the gradients of the prepared queries, keys and values. With the weights W,
// already divided by their sum, dW = DOut·Vᵀ and dS = W∘(dW + Delta), so that
//
//	DQueries = dS·K,  DKeys += dSᵀ·Q,  DValues += Wᵀ·DOut
func (b *Block) Backward(g *Grad) {
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	width, widthV := kernel.Pad(b.D), kernel.Pad(b.Dv)
	most := TileRows(b.D)
	sum := arena.TakeZeros[float](b.Arena, min(most, len(b.Ends)))
	b.setFinite(g.KeyRows, b.LDQ, width)
	b.valuesChecked = false // of values
	for r0 := 0; r0 < len(b.Ends); r0 += most {
		x := b.tileAt(r0, most)
		dq := g.DQueries[r0*b.LDQ:]
		if x.cols <= 0 {
			b.Table.ClearRows(dq, b.LDQ, x.n, width)
			continue
		}
		mark := b.Arena.Mark()
		w, dw := arena.Take[float](b.Arena, x.n*x.ld), arena.Take[float](b.Arena, x.n*x.ld)
		do, delta := g.DOut[r0*g.LDO:], g.Delta[r0:][:x.n]
		b.scores(&x, w)
		b.Table.Block(x.n, kernel.Pad(x.cols), b.Dv, do, g.LDO, 1, g.ValuesT[x.first:], b.LDK, dw, x.ld, false)
		for r := 0; r < x.n; {
			n := b.countDiagonal(&x, r)
			b.clearOutside(&x, w, r, n)
			b.clearOutside(&x, dw, r, n)
			b.gradWeights(&x, w, dw, r, n, g, sum)
			r += n
		}
		if g.DRates != nil {
			b.Table.Mix(g.DRates[x.first:][:kernel.Pad(x.cols)], delta, x.n, w, x.ld, nil, 0)
		}
		b.mix(&x, dw, g.KeyRows, b.LDQ, width, dq, b.LDQ)
		b.Table.Block(x.cols, width, x.n, dw, 1, x.ld, b.Queries[r0*b.LDQ:], b.LDQ, g.DKeys[x.first*b.LDQ:], b.LDQ, true)
		b.Table.Block(x.cols, widthV, x.n, w, 1, x.ld, do, g.LDO, g.DValues[x.first*g.LDV:], g.LDV, true)
		b.Arena.Reset(mark)
	}
}

// gradWeights turns the scores w of n rows from r on into weights, and their
// gradients dw into the gradients of scores.
func (b *Block) gradWeights(x *tile, w, dw []float, r, n int, g *Grad, sum []float) {
	lo, hi := b.bounds(x, r)
	cols, rs := hi-lo, x.ld+1
	if cols <= 0 {
		return
	}
	w, dw = w[r*x.ld+lo:], dw[r*x.ld+lo:]
	plain := b.isPlain()
	if !plain {
		b.adjust(x, r, w[:cols])
	}
	for i := 0; i < n && g.Base != nil; i++ {
		rowscale.Lower(w[i*rs:][:cols], g.Base[x.r0+r+i])
	}
	b.Table.ExpRows(w, rs, cols, b.Factor, g.Top[x.r0+r:][:n], sum)
	b.Table.MulRows(dw, w, rs, cols, g.Delta[x.r0+r:][:n])
	for c := 0; c < cols && !plain; c++ {
		if !b.sees(x.r0+r, x.first+lo+c) {
			w[c], dw[c] = 0, 0
		}
	}
}

// AddFarRows adds the weights of the block's keys to the rows of far.
func (b *Block) AddFarRows(far *rowscale.FarRows) {
	mark := b.Arena.Mark()
	defer b.Arena.Reset(mark)
	most := TileRows(b.D)
	for r0 := 0; r0 < len(b.Ends); r0 += most {
		x := b.tileAt(r0, most)
		if x.cols <= 0 {
			continue
		}
		mark := b.Arena.Mark()
		s := arena.Take[float](b.Arena, x.n*x.ld)
		b.scores(&x, s)
		for r := range x.n {
			lo, hi := b.bounds(&x, r)
			row := s[r*x.ld+lo : r*x.ld+max(lo, hi)]
			if !b.isPlain() {
				b.adjust(&x, r, row)
			}
			far.Add(b.Table, r0+r, row, b.Factor, 0)
		}
		b.Arena.Reset(mark)
	}
}
