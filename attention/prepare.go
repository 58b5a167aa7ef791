package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// headRows is the queries or the keys of one head as they come.
type headRows[T tensor.Float] struct {
	x          tensor.Mat[T]
	scale      T
	pos        int        // rotation of the first
	mask       []bool     // tokens that exist; nil: all
	isPrepared bool       // they are prepared
	stats      *normStats // of a normalisation over all tokens
	drop       headDropout

	keys bool
	head int // query head, for keys the first of those that share them
}

// querySide is the queries of head g of the group.
func (u preparation[T]) querySide(g int) headRows[T] {
	s := headRows[T]{x: u.q[g], scale: u.scale[g], pos: u.pos, isPrepared: u.readyQ, head: u.kh*len(u.q) + g}
	if u.stats != nil {
		s.stats = &u.stats[g]
	}
	if u.drop != nil {
		s.drop = newHeadDropout(u.drop, &u.place, false, u.kh*len(u.q)+g, u.hkv*len(u.q), u.d, s.pos)
		if p, ok := u.spec.Map.(products[T]); ok {
			s.drop.coef = p.coef
		}
	}
	return s
}

func (u preparation[T]) keySide() headRows[T] {
	s := headRows[T]{x: u.k, scale: 1, mask: u.mask, isPrepared: u.isPrepared, stats: u.keyStats, keys: true, head: u.kh * len(u.q)}
	if u.drop != nil {
		s.drop = newHeadDropout(u.drop, &u.place, true, u.kh, u.hkv, u.d, 0)
	}
	return s
}

// normalise normalises columns of x and multiplies them by scale.
func (u preparation[T]) normalise(x []T, ld, n int, s *headRows[T], scale T) {
	if s.stats != nil {
		normaliseWide(u.t, u.spec.Norm, s.stats, x, ld, u.d, n, scale)
		return
	}
	normalise(u.t, u.spec.Norm, x, ld, u.d, n, scale)
}

// isMasked reports whether token i does not exist.
func (s *headRows[T]) isMasked(i int) bool { return s.mask != nil && !s.mask[i] }

// stretch is the number of tokens that are prepared at a time where they are
// wanted as rows.
const stretch = 64

// prepare sets columns of dst [da, ld] to the prepared tokens i0 ≤ i < i1. A
// token that does not exist gives zeros, whatever it holds.
func (u preparation[T]) prepare(dst []T, ld int, s *headRows[T], i0, i1 int) {
	n := i1 - i0
	if n <= 0 {
		return
	}
	if s.isPrepared {
		u.t.Transpose(dst, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.da)
		return
	}
	if u.spec.Features != nil {
		u.mapTokens(dst, ld, s, i0, i1)
		return
	}
	if !u.spec.elementwise() {
		mark := u.ar.Mark()
		rows := arena.Take[T](u.ar, n*u.da)
		u.prepareRows(rows, u.da, s, i0, i1)
		u.t.Transpose(dst, ld, rows, u.da, n, u.da)
		u.ar.Reset(mark)
		return
	}
	u.prepareUnmapped(dst, ld, s, i0, i1)
	u.mapColumns(dst, ld, n)
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for c := range u.da {
				dst[c*ld+i-i0] = 0
			}
		}
	}
}

// featureWidth returns the width of the features' rows: prepared rows have a dimension
// less where their mean is 0, which a rotation after that, or the loss of
// channels, is not sure to leave.
// A single power has no lower terms beside which the roundings of another basis
// would be small: it keeps all of them.
func (u preparation[T]) featureWidth() int {
	return u.spec.featureWidth(u.d, u.rope != nil || u.drop != nil && u.drop.Kind != TokenDrop)
}

// prepareRows is prepare for rows of dst (stride ld, width da).
func (u preparation[T]) prepareRows(dst []T, ld int, s *headRows[T], i0, i1 int) {
	for i := i0; i < i1 && s.isPrepared; i++ {
		copy(dst[(i-i0)*ld:][:u.da], s.x.Row(i))
	}
	if s.isPrepared {
		return
	}
	if u.isScaling(s) {
		u.scaleRows(tensor.Mat[T]{Data: dst, Rows: i1 - i0, Cols: u.d, Stride: ld}, tensor.Mat[T]{Data: s.x.Data[min(i0*s.x.Stride, len(s.x.Data)):], Cols: u.d, Stride: s.x.Stride}, s, i0)
		return
	}
	for i := i0; i < i1; i += stretch {
		n := min(stretch, i1-i)
		to := dst[(i-i0)*ld:]
		mark := u.ar.Mark()
		ldx := scratch.Stride[T](n)
		if u.spec.Features != nil {
			y := arena.Take[T](u.ar, u.da*ldx)
			u.mapTokens(y, ldx, s, i, i+n)
			u.t.Transpose(to, ld, y, ldx, u.da, n)
			u.ar.Reset(mark)
			continue
		}
		x := arena.Take[T](u.ar, u.d*ldx)
		u.prepareUnmapped(x, ldx, s, i, i+n)
		if u.spec.elementwise() {
			u.mapColumns(x, ldx, n)
			u.t.Transpose(to, ld, x, ldx, u.d, n)
		} else {
			rows := arena.Take[T](u.ar, n*u.d)
			u.t.Transpose(rows, u.d, x, ldx, u.d, n)
			for r := range n {
				u.spec.Map.Map(to[r*ld:][:u.da], rows[r*u.d:][:u.d])
				if s.drop.Drop != nil && s.drop.Kind == ProductDrop {
					dropProducts(&s.drop, to[r*ld:][:u.da], u.d, i+r)
				}
			}
		}
		for r := range n {
			if s.isMasked(i + r) {
				clear(to[r*ld:][:u.da])
			}
		}
		u.ar.Reset(mark)
	}
}

// prepareUnmapped sets columns of x [d, ld] to tokens as they are before the feature
// map.
func (u preparation[T]) prepareUnmapped(x []T, ld int, s *headRows[T], i0, i1 int) {
	n := i1 - i0
	u.t.Transpose(x, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.d)
	u.normalise(x, ld, n, s, s.scale)
	if u.rope != nil {
		turnColumns(u.rope, u.t, u.ar, x, ld, s.pos+i0, n, false)
	}
	if s.drop.Drop != nil {
		dropOut(&s.drop, x, ld, 1, u.d, i0, n)
	}
}

// mapColumns applies the feature map, which is elementwise, to columns of x.
func (u preparation[T]) mapColumns(x []T, ld, n int) {
	if u.spec.Map == nil {
		return
	}
	for c := range u.d {
		row := x[c*ld:][:n]
		u.spec.Map.Map(row, row)
	}
}

// prepareGrad sets rows i0 ≤ i < i1 of dx from columns dy [da, ld], the
// gradient of the prepared tokens, which it uses up. Rows of tokens that do not
// exist become zero. It returns the derivative by the scale, where that is
// learned.
func (u preparation[T]) prepareGrad(dx tensor.Mat[T], dy []T, ld int, s *headRows[T], i0, i1 int) (dscale float64) {
	n := i1 - i0
	if n <= 0 {
		return 0
	}
	if s.isPrepared {
		u.t.Transpose(dx.Data[i0*dx.Stride:], dx.Stride, dy, ld, u.da, n)
		return 0
	}
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	x := arena.Take[T](u.ar, u.d*ld)
	switch {
	case u.spec.Features != nil:
		mapped := dy
		dy = arena.Take[T](u.ar, u.d*ld)
		u.mapTokensGrad(dy, mapped, ld, s, i0, i1)
	case u.spec.Map == nil:
	case u.spec.elementwise():
		u.prepareUnmapped(x, ld, s, i0, i1)
		for c := range u.d {
			row := dy[c*ld:][:n]
			u.spec.Map.Grad(row, row, x[c*ld:][:n])
		}
	default:
		u.prepareUnmapped(x, ld, s, i0, i1)
		rows, dmapped, dmap := arena.Take[T](u.ar, n*u.d), arena.Take[T](u.ar, n*u.da), arena.Take[T](u.ar, n*u.d)
		u.t.Transpose(rows, u.d, x, ld, u.d, n)
		u.t.Transpose(dmapped, u.da, dy, ld, u.da, n)
		for r := range n {
			if s.drop.Drop != nil && s.drop.Kind == ProductDrop {
				dropProducts(&s.drop, dmapped[r*u.da:][:u.da], u.d, i0+r)
			}
			u.spec.Map.Grad(dmap[r*u.d:][:u.d], dmapped[r*u.da:][:u.da], rows[r*u.d:][:u.d])
		}
		dy = arena.Take[T](u.ar, u.d*ld)
		u.t.Transpose(dy, ld, dmap, u.d, n, u.d)
	}
	if s.drop.Drop != nil {
		dropOut(&s.drop, dy, ld, 1, u.d, i0, n)
	}
	if u.rope != nil {
		turnColumns(u.rope, u.t, u.ar, dy, ld, s.pos+i0, n, true)
	}
	u.t.Transpose(x, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.d)
	if u.spec.Tau != nil {
		unscaled := arena.Take[T](u.ar, u.d*ld)
		copy(unscaled, x)
		u.normalise(unscaled, ld, n, s, 1)
		for c := range u.d {
			dscale += float64(u.t.Dot(dy[c*ld:][:n], unscaled[c*ld:]))
		}
	}
	if s.stats != nil {
		factor, _ := invertLength(u.spec.Norm, s.stats.length) // wideGrad does the rest
		scaleColumns(u.t, dy, ld, u.d, n, T(factor)*s.scale)
	} else {
		normaliseGrad(u.t, u.spec.Norm, dy, x, ld, u.d, n, s.scale)
	}
	u.t.Transpose(dx.Data[i0*dx.Stride:], dx.Stride, dy, ld, u.d, n)
	for i := i0; i < i1; i++ {
		if s.isMasked(i) {
			clear(dx.Row(i))
		}
	}
	return dscale
}

// isScaling reports that prepared tokens are the tokens times the scale.
func (u preparation[T]) isScaling(s *headRows[T]) bool {
	return u.spec.Norm == NoNorm && u.spec.Features == nil && !u.spec.hasMap() && u.rope == nil && s.drop.Drop == nil && s.stats == nil
}

// scaleRows sets rows of dst, tokens from i0 on, to rows of x times the scale.
// Rows of masked tokens become zero.
func (u preparation[T]) scaleRows(dst, x tensor.Mat[T], s *headRows[T], i0 int) {
	if dst.Rows == 0 {
		return
	}
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	scale := u.linear().takeScratch(dst.Rows)
	for r := range scale {
		scale[r] = s.scale
	}
	u.t.ScaleRows(dst.Data, dst.Stride, x.Data, x.Stride, dst.Cols, scale)
	for r := 0; r < dst.Rows && s.mask != nil; r++ {
		if s.isMasked(i0 + r) {
			clear(dst.Row(r))
		}
	}
}

// addRows adds to rows of dst, tokens from i0 on, rows y times the scale. Rows of
// masked tokens stay.
func (u preparation[T]) addRows(dst tensor.Mat[T], y []T, ld int, s *headRows[T], i0 int) {
	if s.mask != nil {
		for r := range dst.Rows {
			if !s.isMasked(i0 + r) {
				u.t.Axpy(dst.Row(r), s.scale, y[r*ld:])
			}
		}
		return
	}
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	scale := u.linear().takeScratch(dst.Rows)
	for r := range scale {
		scale[r] = s.scale
	}
	u.t.MixRows(dst.Data, dst.Stride, dst.Data, dst.Stride, ones[T](u.ar, dst.Rows), y, ld, scale, dst.Cols)
}

// prepareRowsGrad is prepareGrad from rows dy (stride ld, width da).
func (u preparation[T]) prepareRowsGrad(dx tensor.Mat[T], dy []T, ld int, s *headRows[T], i0, i1 int) (dscale float64) {
	if !s.isPrepared && u.isScaling(s) && u.spec.Tau == nil {
		if u.adds {
			u.addRows(dx.Slice(i0, i1), dy, ld, s, i0)
			return 0
		}
		u.scaleRows(dx.Slice(i0, i1), tensor.Mat[T]{Data: dy, Cols: u.d, Stride: ld}, s, i0)
		return 0
	}
	for i := i0; i < i1; i += stretch {
		n := min(stretch, i1-i)
		mark := u.ar.Mark()
		ldx := scratch.Stride[T](n)
		columns := arena.Take[T](u.ar, u.da*ldx)
		u.t.Transpose(columns, ldx, dy[(i-i0)*ld:], ld, n, u.da)
		dscale += u.prepareGrad(dx, columns, ldx, s, i, i+n)
		u.ar.Reset(mark)
	}
	return dscale
}

// The rows that the direct form works on.

// prepareQ sets rows of dst (stride ld, width da) to the prepared queries
// i0 ≤ i < i1 of head g of the group.
func (u preparation[T]) prepareQ(dst []T, ld, g, i0, i1 int) {
	s := u.querySide(g)
	u.prepareRows(dst, ld, &s, i0, i1)
}

// prepareK sets rows of dst to the prepared keys j0 ≤ j < j1.
func (u preparation[T]) prepareK(dst []T, ld, j0, j1 int) {
	s := u.keySide()
	u.prepareRows(dst, ld, &s, j0, j1)
}

// gradQ sets dq of queries i0 ≤ i < i1 of head g from the gradient rows of
// their prepared form, and adds to dscale.
func (u preparation[T]) gradQ(g, i0, i1 int, da []T, ld int) {
	s := u.querySide(g)
	u.dscale[g] += u.prepareRowsGrad(u.dq[g], da, ld, &s, i0, i1)
}

// gradK sets dk of keys j0 ≤ j < j1 from the gradient rows of their prepared
// form.
func (u preparation[T]) gradK(j0, j1 int, db []T, ld int) {
	s := u.keySide()
	u.prepareRowsGrad(u.dk, db, ld, &s, j0, j1)
}

// preparedRows sets n rows of dst, from row r0 on, to tokens before the map.
func (u preparation[T]) preparedRows(dst tensor.Mat[T], r0, n int, s *headRows[T]) {
	for i := 0; i < n; i += stretch {
		l := min(stretch, n-i)
		mark := u.ar.Mark()
		ld := scratch.Stride[T](l)
		x := arena.Take[T](u.ar, u.d*ld)
		u.prepareUnmapped(x, ld, s, i, i+l)
		rows := dst.Slice(r0+i, r0+i+l)
		for r := range l {
			for c := range u.d {
				rows.Row(r)[c] = x[c*ld+r]
			}
			if s.isMasked(i + r) {
				clear(rows.Row(r))
			}
		}
		u.ar.Reset(mark)
	}
}

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
