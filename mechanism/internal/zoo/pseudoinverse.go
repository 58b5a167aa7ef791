package zoo

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// pseudoInverse iterates towards the pseudo-inverse Z of a square matrix A whose rows sum to
// 1 (Razavi et al. 2014, as in Xiong et al. 2021, arXiv 2102.03902). A step is
//
//	P = AZ   X = 7I - P   Y = 15I - PX   W = 13I - PY   Z ← ZW/4
//
// The first Z is Aᵀ/c, where c is the largest column sum of A. The iteration converges from
// Aᵀ/(|A|₁·|A|∞), and |A|∞ is 1.
type pseudoInverse struct {
	h          *headwise.Head
	a          tensor.Mat
	p, x, y, w tensor.Mat
}

func newPseudoInverse(h *headwise.Head, a tensor.Mat) pseudoInverse {
	l := a.Rows
	return pseudoInverse{h, a, h.TakeScratch(l, l), h.TakeScratch(l, l), h.TakeScratch(l, l), h.TakeScratch(l, l)}
}

// start sets z to the first Z, and returns c and the column that has this sum.
func (s *pseudoInverse) start(z tensor.Mat) (c float, column int) {
	sums := arena.TakeZeros[float](s.h.Scratch, s.a.Cols)
	for i := range s.a.Rows {
		s.h.Table.Add(sums, sums, s.a.Row(i))
	}
	for j, x := range sums {
		if x > c {
			c, column = x, j
		}
	}
	s.h.Table.Transpose(z.Data, z.Stride, s.a.Data, s.a.Stride, s.a.Rows, s.a.Cols)
	s.h.Table.Scale(z.Data, 1/c, z.Data)
	return c, column
}

// factors sets P, X, Y and W for the step from z.
func (s *pseudoInverse) factors(z tensor.Mat) {
	s.h.Multiply(s.p, s.a, z, false, false, false)
	fromIdentity(s.x, s.p, 7)
	s.h.Multiply(s.y, s.p, s.x, false, false, false)
	fromIdentity(s.y, s.y, 15)
	s.h.Multiply(s.w, s.p, s.y, false, false, false)
	fromIdentity(s.w, s.w, 13)
}

// fromIdentity sets dst to c·I - x.
func fromIdentity(dst, x tensor.Mat, c float) {
	for i := range x.Rows {
		row := dst.Row(i)
		for j, v := range x.Row(i) {
			row[j] = -v
		}
		row[i] += c
	}
}

// step sets next to the Z that follows z.
func (s *pseudoInverse) step(next, z tensor.Mat) {
	s.factors(z)
	s.h.Multiply(next, z, s.w, false, false, false)
	s.h.Table.Scale(next.Data, 0.25, next.Data)
}

// PseudoInverse sets z [n,n] to an approximation of the pseudo-inverse of a [n,n] after
// steps iterations. The rows of a need to sum to 1. It returns the largest magnitude in
// AZA - A, which is 0 in the limit. Both matrices need to be contiguous.
func PseudoInverse(h *headwise.Head, z, a tensor.Mat, steps int) (residual float64) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	s := newPseudoInverse(h, a)
	next := h.TakeScratch(a.Rows, a.Cols)
	s.start(z)
	for range steps {
		s.step(next, z)
		copy(z.Data, next.Data)
	}
	h.Multiply(s.p, a, z, false, false, false)
	h.Multiply(s.x, s.p, a, false, false, false)
	for i, x := range s.x.Data {
		residual = max(residual, math.Abs(float64(x-a.Data[i])))
	}
	return residual
}

// PseudoInverseGrad adds the gradient of a to da [n,n], given the gradient dz [n,n] of the
// result of PseudoInverse with as many steps. It differentiates the iterations that were
// made, whether they have converged or not. It overwrites dz.
func PseudoInverseGrad(h *headwise.Head, da, dz, a tensor.Mat, steps int) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	s := newPseudoInverse(h, a)
	l := a.Rows
	all := h.TakeScratch((steps+1)*l, l) // Z before each step, and after the last
	at := func(i int) tensor.Mat { return all.Slice(i*l, (i+1)*l) }
	c, column := s.start(at(0))
	for i := range steps {
		s.step(at(i+1), at(i))
	}
	dp, dw, dy, dx, next := h.TakeScratch(l, l), h.TakeScratch(l, l), h.TakeScratch(l, l), h.TakeScratch(l, l), h.TakeScratch(l, l)
	negate := func(x tensor.Mat) { h.Table.Scale(x.Data, -1, x.Data) }
	for i := steps - 1; i >= 0; i-- {
		z := at(i)
		s.factors(z)
		h.Table.Scale(dz.Data, 0.25, dz.Data)
		h.Multiply(next, dz, s.w, false, true, false)
		h.Multiply(dw, z, dz, true, false, false)
		negate(dw) // gradient of PY
		h.Multiply(dp, dw, s.y, false, true, false)
		h.Multiply(dy, s.p, dw, true, false, false)
		negate(dy) // gradient of PX
		h.Multiply(dp, dy, s.x, false, true, true)
		h.Multiply(dx, s.p, dy, true, false, false)
		h.Table.Axpy(dp.Data, -1, dx.Data)
		h.Multiply(da, dp, z, false, true, true)
		h.Multiply(next, a, dp, true, false, true)
		copy(dz.Data, next.Data)
	}
	// The first Z is Aᵀ/c: A gets dZᵀ/c, and each element of the column of c gets -Σ dZ∘Z/c.
	var along float
	for i := range l {
		along += h.Table.Dot(dz.Row(i), at(0).Row(i))
	}
	for i := range l {
		row := da.Row(i)
		for j := range row {
			row[j] += dz.Row(j)[i] / c
		}
		row[column] -= along / c
	}
}
