package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// unit is the piece of work that one goroutine does: one key head of one
// sequence, with the group of query heads that share it. Its results depend on
// nothing outside it.
type unit[T tensor.Float] struct {
	t    *kernel.Table[T]
	spec *Spec[T]
	ar   *arena.Arena

	q, o   []tensor.Mat[T] // per query head of the group: [n,D], [n,Dv]
	k, v   tensor.Mat[T]   // [m,D], [m,Dv]
	den    [][]T           // per query head: denominators [n], in or out
	scale  []T             // per query head
	n, m   int
	d, dv  int
	da     int // width of prepared rows
	causal bool
	off    int // query i sees keys j ≤ i+off, where causal
	chunk  int // tokens of a chunk, at least 1

	mask    []bool // [m] keys that exist; nil: all
	keep    []bool // pairs: keep[i*keepRow+j]; nil: all; direct form only
	keepRow int
	rope    *Rope[T]

	// Backward only.
	do, dq   []tensor.Mat[T] // per query head: [n,Dv], [n,D]
	dk, dval tensor.Mat[T]   // [m,D], [m,Dv]
	dscale   []float64       // per query head: Σ dq'·q' before the scale
}

// seen returns how many keys query i could see by position alone: keys
// 0 ≤ j < seen, before masks.
func (u *unit[T]) seen(i int) int {
	if !u.causal {
		return u.m
	}
	return min(max(i+u.off+1, 0), u.m)
}

// exists reports whether key j takes part.
func (u *unit[T]) exists(j int) bool { return u.mask == nil || u.mask[j] }

// qRope is the rotation of query i.
func (u *unit[T]) qRope(i int) int {
	if u.causal {
		return i + u.off
	}
	return i
}

// prepareQ sets rows of dst (stride ld, width da) to the prepared queries
// i0 ≤ i < i1 of head g of the group.
func (u *unit[T]) prepareQ(dst []T, ld, g, i0, i1 int) {
	for i := i0; i < i1; i++ {
		u.prepare(dst[(i-i0)*ld:][:u.da], u.q[g].Row(i), u.scale[g], u.qRope(i))
	}
}

// prepareK sets rows of dst to the prepared keys j0 ≤ j < j1. A key that does
// not exist gives a zero row, whatever it holds.
func (u *unit[T]) prepareK(dst []T, ld, j0, j1 int) {
	for j := j0; j < j1; j++ {
		row := dst[(j-j0)*ld:][:u.da]
		if u.exists(j) {
			u.prepare(row, u.k.Row(j), 1, j)
		} else {
			clear(row)
		}
	}
}

// copyV sets rows of dst (stride ld ≥ Dv) to values j0 ≤ j < j1, zero beyond Dv
// and where the key does not exist.
func (u *unit[T]) copyV(dst []T, ld, j0, j1 int) {
	for j := j0; j < j1; j++ {
		row := dst[(j-j0)*ld:][:ld]
		if !u.exists(j) {
			clear(row)
			continue
		}
		clear(row[copy(row, u.v.Row(j)):])
	}
}

func (u *unit[T]) prepare(dst, x []T, scale T, pos int) {
	if u.spec.Map == nil {
		u.rows(dst, x, scale, pos)
		return
	}
	mark := u.ar.Mark()
	y := arena.Take[T](u.ar, u.d)
	u.rows(y, x, scale, pos)
	u.spec.Map.Map(dst, y)
	u.ar.Reset(mark)
}

// rows is prepare before the feature map.
func (u *unit[T]) rows(dst, x []T, scale T, pos int) {
	normalise(u.spec.Norm, dst, x)
	if u.rope != nil {
		u.rope.turn(dst, pos, 1)
	}
	if scale != 1 {
		for c := range dst {
			dst[c] *= scale
		}
	}
}

// gradQ sets dq of queries i0 ≤ i < i1 of head g from the gradient rows of
// their prepared form, and adds to dscale.
func (u *unit[T]) gradQ(g, i0, i1 int, da []T, ld int) {
	for i := i0; i < i1; i++ {
		u.dscale[g] += u.prepareGrad(u.dq[g].Row(i), da[(i-i0)*ld:][:u.da], u.q[g].Row(i), u.scale[g], u.qRope(i))
	}
}

// gradK sets dk of keys j0 ≤ j < j1 from the gradient rows of their prepared
// form; zero where the key does not exist.
func (u *unit[T]) gradK(j0, j1 int, db []T, ld int) {
	for j := j0; j < j1; j++ {
		if u.exists(j) {
			u.prepareGrad(u.dk.Row(j), db[(j-j0)*ld:][:u.da], u.k.Row(j), 1, j)
		} else {
			clear(u.dk.Row(j))
		}
	}
}

// prepareGrad sets dx from the gradient dy of the prepared x and returns the
// derivative by the scale.
func (u *unit[T]) prepareGrad(dx, dy, x []T, scale T, pos int) float64 {
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	y := arena.Take[T](u.ar, u.d)
	if u.spec.Map != nil {
		z := arena.Take[T](u.ar, u.d)
		u.rows(z, x, scale, pos)
		u.spec.Map.Grad(y, dy, z)
	} else {
		copy(y, dy)
	}
	if u.rope != nil {
		u.rope.turn(y, pos, -1)
	}
	// y is now the gradient of scale·x̂, turned back.
	var ds float64
	if u.spec.Tau != nil {
		xh := arena.Take[T](u.ar, u.d)
		normalise(u.spec.Norm, xh, x)
		for c := range xh {
			ds += float64(y[c]) * float64(xh[c])
		}
	}
	if scale != 1 {
		for c := range y {
			y[c] *= scale
		}
	}
	normaliseGrad(u.spec.Norm, dx, y, x)
	return ds
}
