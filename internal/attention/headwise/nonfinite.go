package headwise

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// In a tile of a causal head the weights of later tokens are 0, but 0·NaN is NaN, so a later
// token that is not finite could change earlier outputs. A head with such a token is therefore
// computed a second time with zeros in place of the token, and the outputs of earlier queries
// are taken from there.

// firstReached returns the first query whose output tokens that are not finite may change, or the
// number of queries if there is none.
func (h *Head) firstReached() int {
	first := h.Q.Rows
	if !h.Causal {
		return first
	}
	for _, x := range []struct {
		rows   tensor.Mat
		offset int
	}{{h.Q, 0}, {h.K, h.Offset}, {h.V, h.Offset}} {
		if !scratch.HasNonFiniteSum(x.rows) {
			continue
		}
		for j := 0; j < x.rows.Rows && j-x.offset < first; j++ {
			if scratch.HasNonFiniteSum(x.rows.Slice(j, j+1)) {
				first = max(j-x.offset, 0)
			}
		}
	}
	return first
}

// tame returns a copy of x with zeros in place of rows that are not finite.
func tame(ar *arena.Arena, x tensor.Mat) tensor.Mat {
	y := scratch.TakeMat(ar, x.Rows, x.Cols)
	scratch.CopyMat(y, x)
	for j := range x.Rows {
		if scratch.HasNonFiniteSum(x.Slice(j, j+1)) {
			clear(y.Row(j))
		}
	}
	return y
}

// tamed returns the head with zeros in place of rows that are not finite, without outputs.
func (h *Head) tamed() *Head {
	other := *h
	other.Q, other.K, other.V, other.Out = tame(h.Scratch, h.Q), tame(h.Scratch, h.K), tame(h.Scratch, h.V), h.TakeScratch(h.Q.Rows, h.V.Cols)
	other.Saved, other.illConditioned = nil, illConditionedRows{}
	return &other
}

// forward computes Function.Forward so that tokens that are not finite do not change outputs of
// earlier queries. It reports whether an output may not be finite.
func (w *driver) forward(h *Head) (broken bool) {
	w.Function.Forward(h)
	if !scratch.HasNonFiniteSum(h.Out) {
		return false
	}
	if first := h.firstReached(); first > 0 && first < h.Q.Rows {
		mark := h.Scratch.Mark()
		other := h.tamed()
		other.NeedsBackward = false
		w.Function.Forward(other)
		scratch.CopyMat(h.Out.Slice(0, first), other.Out.Slice(0, first))
		h.Scratch.Reset(mark)
	}
	return true
}

// backward computes Function.Backward so that tokens that are not finite do not change gradients of
// earlier queries.
func (w *driver) backward(h *Head, g *Grads) {
	w.Function.Backward(h, g)
	if !scratch.HasNonFiniteSum(g.DQ) {
		return
	}
	if first := h.firstReached(); first > 0 && first < h.Q.Rows {
		mark := h.Scratch.Mark()
		other := h.tamed()
		w.Function.Forward(other)
		own := &Grads{DOut: g.DOut, DAux: g.DAux, DQ: h.TakeScratch(h.Q.Rows, h.Q.Cols), DK: h.TakeScratch(h.K.Rows, h.K.Cols), DV: h.TakeScratch(h.V.Rows, h.V.Cols)}
		for _, x := range g.Params {
			own.Params = append(own.Params, arena.TakeZeros[float](h.Scratch, len(x)))
		}
		w.Function.Backward(other, own)
		scratch.CopyMat(g.DQ.Slice(0, first), own.DQ.Slice(0, first))
		h.Scratch.Reset(mark)
	}
}
