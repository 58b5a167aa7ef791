package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Features is a feature map that knows the head and the side that it maps, and
// may have numbers of its own: learned ones, or drawn ones. It is given tokens a
// block at a time, so that products with such numbers are products of matrices.
// What becomes of a token depends on nothing but the token, its head and side.
type Features[T tensor.Float] interface {
	Dim(d int) int
	Params() *param.Set[T]    // learned; nil: none
	Constants() *param.Set[T] // drawn; nil: none
	// Check reports heads and a width that the numbers do not fit.
	Check(heads, keyHeads, d int) error
	// Map sets b.Y from b.X.
	Map(b *FeatureBlock[T])
	// Grad sets b.DX from b.X and the gradient b.Y of the features, which it may
	// use up, and adds to b.DParams.
	Grad(b *FeatureBlock[T])
}

// FeatureBlock holds some tokens of one head as columns: rows of X, Y and DX lie Stride
// apart. Columns from N to kernel.Pad(N) may be overwritten and must not be read.
type FeatureBlock[T tensor.Float] struct {
	Table   *kernel.Table[T]
	Scratch *arena.Arena

	Keys        bool
	Head, First int // query head, for keys First: the first of those that share them

	D, N, Stride int
	X            []T   // [D, Stride] normalised, rotated, scaled
	Y            []T   // [Dim, Stride]
	DX           []T   // [D, Stride]
	DParams      [][]T // one as long as each of Params
}

// Take returns scratch memory with undefined contents.
func (b *FeatureBlock[T]) Take(n int) []T { return arena.Take[T](b.Scratch, n) }

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
type BoundedProduct interface{ Bound() float64 }

// hasMap reports that prepared rows are not as normalisation, rotation and scale
// leave them.
func (s *Spec[T]) hasMap() bool { return s.Map != nil || s.Features != nil }

// featureBlock returns tokens i0 ≤ i < i1 of a side, ready for Map. Those that do
// not exist are zero, whatever they hold.
func (u *headTask[T]) featureBlock(s *headRows[T], i0, i1 int) FeatureBlock[T] {
	n := i1 - i0
	b := FeatureBlock[T]{Table: u.t, Scratch: u.ar, Keys: s.keys, Head: s.head, First: u.kh * len(u.q), D: u.d, N: n, Stride: scratch.Stride[T](n)}
	b.X, b.Y = u.linear().takeScratch(u.d*b.Stride), u.linear().takeScratch(u.da*b.Stride)
	u.rows().prepareUnmapped(b.X, b.Stride, s, i0, i1)
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for c := range u.d {
				b.X[c*b.Stride+i-i0] = 0
			}
		}
	}
	return b
}

// mapTokens sets columns of dst [da, ld] to the features of tokens i0 ≤ i < i1.
func (u *headTask[T]) mapTokens(dst []T, ld int, s *headRows[T], i0, i1 int) {
	mark := u.ar.Mark()
	b := u.featureBlock(s, i0, i1)
	u.spec.Features.Map(&b)
	if u.rows().hasGates(s) {
		u.rows().applyGates(b.Y, b.Stride, i0, i1)
	}
	for f := range u.da {
		copy(dst[f*ld:][:b.N], b.Y[f*b.Stride:])
	}
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for f := range u.da {
				dst[f*ld+i-i0] = 0
			}
		}
	}
	u.ar.Reset(mark)
}

// mapTokensGrad sets columns of dx [d, ld] from columns dy [da, ld], the gradient
// of the features of tokens i0 ≤ i < i1.
func (u *headTask[T]) mapTokensGrad(dx, dy []T, ld int, s *headRows[T], i0, i1 int) {
	mark := u.ar.Mark()
	b := u.featureBlock(s, i0, i1)
	b.DX, b.DParams = u.linear().takeScratch(u.d*b.Stride), u.dparams
	for f := range u.da {
		copy(b.Y[f*b.Stride:][:b.N], dy[f*ld:])
	}
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for f := range u.da {
				b.Y[f*b.Stride+i-i0] = 0
			}
		}
	}
	if u.rows().hasGates(s) {
		u.rows().gateGrad(&b, i0)
	}
	u.spec.Features.Grad(&b)
	for c := range u.d {
		copy(dx[c*ld:][:b.N], b.DX[c*b.Stride:])
	}
	u.ar.Reset(mark)
}

// mapToken sets row i to the features of x [D].
func (r *tokenRows[T]) mapToken(ar *arena.Arena, i int, x []T) {
	mark := ar.Mark()
	row, s := r.x[i*r.ld:][:r.ld], r.s
	group := s.H / s.Hkv
	b := FeatureBlock[T]{Table: kernel.Active[T](), Scratch: ar, D: s.D, N: 1, Stride: kernel.Lanes}
	if b.Keys = i >= r.queries; b.Keys {
		_, kh := r.place(i-r.queries, s.Hkv)
		b.First = kh * group
		b.Head = b.First
	} else {
		_, b.Head = r.place(i, s.H)
		b.First = b.Head / group * group
	}
	b.X, b.Y = arena.TakeZeros[T](ar, s.D*b.Stride), b.Take(r.ld*b.Stride)
	for c, y := range x {
		b.X[c*b.Stride] = y
	}
	r.e.spec.Features.Map(&b)
	for f := range row {
		row[f] = b.Y[f*b.Stride]
	}
	ar.Reset(mark)
}

// Gradients of the numbers of features: each key head of each sequence has all
// of them for itself, and they are added in that order.

// paramGradsOf returns the parts of dparams that belong to task i.
func (p *callPass[T]) paramGradsOf(i int) (parts [][]T) {
	all := p.e.spec.Features.Params().All()
	size := p.e.spec.Features.Params().Size()
	from := p.dparams[i*size:][:size]
	for _, x := range all {
		parts = append(parts, from[:len(x.Data)])
		from = from[len(x.Data):]
	}
	return parts
}

// learnsFeatures reports that features have learned numbers.
func (s *Spec[T]) learnsFeatures() bool {
	return s.Features != nil && s.Features.Params().Size() > 0
}

// addParamGrads adds the gradients of all tasks to the parameters'.
func (p *callPass[T]) addParamGrads() {
	t := kernel.Active[T]()
	from := p.dparams
	for len(from) > 0 {
		for _, x := range p.e.spec.Features.Params().All() {
			t.Add(x.Grad, x.Grad, from[:len(x.Grad)])
			from = from[len(x.Grad):]
		}
	}
}
