package headwise

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/band"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// windowQueries is the number of queries whose keys are transposed together.
const windowQueries = 192

// windowPass is Forward or Backward of a head over the pairs of a window.
type windowPass struct {
	h      *Head
	lo, hi []int32 // of all queries
	scale  float
	factor float // of scores, to base 2
}

// window returns the pass of pairs, one part with all queries and keys of h.
func (s *PatternSoftmax) window(h *Head, pairs *Pattern) windowPass {
	scale := s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(h.Q.Cols))
	}
	p := windowPass{h: h, scale: float(scale), factor: float(scale * math.Log2E)}
	p.lo, p.hi = pairs.boundsOf(&pairs.patches[0])
	return p
}

// block returns queries i0 ≤ i < i0+n and the nk keys from first on that any of them sees.
func (p *windowPass) block(i0, n int) (b band.Block, first, nk int) {
	h, ar := p.h, p.h.Scratch
	bounds := func(i int) (lo, hi int) {
		hi = min(max(int(p.hi[i]), 0), h.K.Rows)
		return min(max(int(p.lo[i]), 0), hi), hi
	}
	first, _ = bounds(i0)
	_, end := bounds(i0 + n - 1)
	nk = end - first
	b = band.Block{
		Table: h.Table, Arena: ar, D: h.Q.Cols, Dv: h.V.Cols, Factor: p.factor,
		LDQ: h.Q.Stride, LDK: scratch.Stride[float](nk),
		Queries: rowsFrom(h.Q, i0), Starts: arena.Take[int32](ar, n), Ends: arena.Take[int32](ar, n),
	}
	for r := range n {
		lo, hi := bounds(i0 + r)
		b.Starts[r], b.Ends[r] = int32(lo-first), int32(hi-first)
	}
	if h.Mask != nil && slices.Contains(h.Mask[first:end], false) {
		b.Mask = h.Mask[first:end]
	}
	b.Keys = arena.Take[float](ar, b.D*b.LDK)
	h.Table.Transpose(b.Keys, b.LDK, rowsFrom(h.K, first), h.K.Stride, nk, b.D)
	b.Values, b.LDV = p.padded(h.V, first, nk)
	return b, first, nk
}

// rowsFrom returns the rows of x from row i on.
func rowsFrom(x tensor.Mat, i int) []float {
	return x.Data[min(i*x.Stride, len(x.Data)):]
}

// padded returns n rows of x from row i on, zero up to whole vectors: in place or copied.
func (p *windowPass) padded(x tensor.Mat, i, n int) (rows []float, ld int) {
	if x.Cols%kernel.Lanes == 0 {
		return rowsFrom(x, i), x.Stride
	}
	return p.copied(x, i, n)
}

// copied returns the rows of padded as a copy.
func (p *windowPass) copied(x tensor.Mat, i, n int) (rows []float, ld int) {
	ld = scratch.Stride[float](x.Cols)
	rows = arena.TakeZeros[float](p.h.Scratch, n*ld)
	for r := range n {
		copy(rows[r*ld:], x.Row(i+r))
	}
	return rows, ld
}

// windowForward computes Forward for a window.
func (s *PatternSoftmax) windowForward(h *Head, lse []float, pairs *Pattern) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	p := s.window(h, pairs)
	h.UnseenQueries = 0
	for i0 := 0; i0 < h.Q.Rows; i0 += windowQueries {
		n := min(windowQueries, h.Q.Rows-i0)
		mark := h.Scratch.Mark()
		b, _, _ := p.block(i0, n)
		sums := rowscale.TakeSums(h.Scratch, n)
		b.Attend(rowsFrom(h.Out, i0), h.Out.Stride, sums)
		for r, sum := range sums.Sum {
			switch {
			case sum != 0 && !h.NeedsBackward:
			case sum != 0:
				lse[i0+r] = float(float64(sums.Base[r])*float64(p.factor) + float64(sums.Top[r]) + math.Log2(float64(sum)))
			case p.sees(i0 + r): // scores that have overflowed
				h.Table.Scale(h.Out.Row(i0+r), float(math.NaN()), h.Out.Row(i0+r))
				lse[i0+r] = float(math.NaN())
			default:
				lse[i0+r] = float(math.Inf(-1))
				h.UnseenQueries++
			}
		}
		h.Scratch.Reset(mark)
	}
}

// sees reports whether query i sees any unmasked key.
func (p *windowPass) sees(i int) bool {
	for j := max(int(p.lo[i]), 0); j < min(int(p.hi[i]), p.h.K.Rows); j++ {
		if p.h.IsUnmasked(j) {
			return true
		}
	}
	return false
}

// windowBackward computes Backward for a window.
func (s *PatternSoftmax) windowBackward(h *Head, g *Grads, out, dout tensor.Mat, lse []float, pairs *Pattern) {
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	p := s.window(h, pairs)
	scale := arena.Take[float](ar, 2*windowQueries+h.K.Rows)
	one := arena.Take[float](ar, len(scale))
	for i := range scale {
		scale[i], one[i] = p.scale, 1
	}
	for i0 := 0; i0 < h.Q.Rows; i0 += windowQueries {
		n := min(windowQueries, h.Q.Rows-i0)
		mark := ar.Mark()
		b, first, nk := p.block(i0, n)
		b.Queries, b.LDQ = p.copied(h.Q, i0, n)
		x := band.Grad{
			Delta: arena.Take[float](ar, n), Top: arena.Take[float](ar, n), DQueries: arena.Take[float](ar, n*b.LDQ),
			ValuesT: arena.Take[float](ar, b.Dv*b.LDK), LDV: scratch.Stride[float](b.Dv),
			DKeys: arena.TakeZeros[float](ar, nk*b.LDQ),
		}
		x.DValues = arena.TakeZeros[float](ar, nk*x.LDV)
		x.KeyRows, _ = p.copied(h.K, first, nk)
		h.Table.Transpose(x.ValuesT, b.LDK, b.Values, b.LDV, nk, b.Dv)
		x.DOut, x.LDO = p.padded(dout, i0, n)
		h.Table.RowDots(x.Delta, x.DOut, x.LDO, rowsFrom(out, i0), out.Stride, b.Dv)
		h.Table.Scale(x.Delta, -1, x.Delta)
		for r := range n {
			// A query that sees nothing has no weights, over whatever power of 2.
			x.Top[r] = max(lse[i0+r], -math.MaxFloat32)
		}
		if far := rowscale.FarRowsOf(ar, x.Top); far != nil {
			b.AddFarRows(far)
			far.Finish()
			x.Base = far.Base
		}
		b.Backward(&x)
		add := func(to tensor.Mat, i int, from []float, ld, n int, by []float) {
			rows := rowsFrom(to, i)
			h.Table.MixRows(rows, to.Stride, rows, to.Stride, one[:n], from, ld, by[:n], to.Cols)
		}
		add(g.DQ, i0, x.DQueries, b.LDQ, n, scale)
		add(g.DK, first, x.DKeys, b.LDQ, nk, scale)
		add(g.DV, first, x.DValues, x.LDV, nk, one)
		ar.Reset(mark)
	}
}
