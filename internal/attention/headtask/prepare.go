package headtask

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// headRows is the queries or the keys of one head as they come.
type headRows struct {
	x          tensor.Mat
	scale      float
	pos        int        // rotation of the first
	mask       []bool     // unmasked tokens; nil: all
	isPrepared bool       // they are prepared
	stats      *NormStats // of a normalisation over all tokens
	drop       HeadDropout

	keys bool
	head int // query head; for keys, the first one that shares them
}

// QuerySide describes the queries of head g of the group.
func (u *Geometry) QuerySide(g int) headRows {
	s := headRows{x: u.Q[g], scale: u.Scale[g], pos: u.FirstPosition, isPrepared: u.HasPreparedQueries, head: u.KeyHead*len(u.Q) + g}
	if u.Stats != nil {
		s.stats = &u.Stats[g]
	}
	if u.Drop != nil {
		s.drop = NewHeadDropout(u.Drop, &u.Coords, false, u.KeyHead*len(u.Q)+g, u.KeyHeads*len(u.Q), u.D, s.pos)
		if p, ok := u.Spec.Map.(Products); ok {
			s.drop.Coef = p.Coef
		}
	}
	return s
}

func (u *Geometry) KeySide() headRows {
	s := headRows{x: u.K, scale: 1, mask: u.Mask, isPrepared: u.HasPreparedKeys, stats: u.KeyStats, keys: true, head: u.KeyHead * len(u.Q)}
	if u.Drop != nil {
		s.drop = NewHeadDropout(u.Drop, &u.Coords, true, u.KeyHead, u.KeyHeads, u.D, 0)
	}
	return s
}

// normalise normalises columns of x and multiplies them by scale.
func (u *Geometry) normalise(x []float, ld, n int, s *headRows, scale float) {
	if s.stats != nil {
		normaliseWide(u.Table, u.Spec.Norm, s.stats, x, ld, u.D, n, scale)
		return
	}
	Normalise(u.Table, u.Spec.Norm, x, ld, u.D, n, scale)
}

// isMasked reports whether token i is masked.
func (s *headRows) isMasked(i int) bool { return s.mask != nil && !s.mask[i] }

// stretch is the number of tokens that are prepared at a time where they are
// wanted as rows.
const stretch = 64

// Prepare sets columns of dst [da, ld] to the prepared tokens i0 ≤ i < i1. A masked token gives
// zeros, whatever it holds.
func (u *Task) Prepare(dst []float, ld int, s *headRows, i0, i1 int) {
	n := i1 - i0
	if n <= 0 {
		return
	}
	if s.isPrepared {
		u.Table.Transpose(dst, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.PreparedWidth)
		return
	}
	if u.Spec.Features != nil {
		u.mapTokens(dst, ld, s, i0, i1)
		return
	}
	if !u.Spec.IsElementwise() {
		mark := u.Arena.Mark()
		rows := arena.Take[float](u.Arena, n*u.PreparedWidth)
		u.prepareRows(rows, u.PreparedWidth, s, i0, i1)
		u.Table.Transpose(dst, ld, rows, u.PreparedWidth, n, u.PreparedWidth)
		u.Arena.Reset(mark)
		return
	}
	u.prepareUnmapped(dst, ld, s, i0, i1)
	u.mapColumns(dst, ld, n)
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for c := range u.PreparedWidth {
				dst[c*ld+i-i0] = 0
			}
		}
	}
}

// FeatureWidth returns the width of the rows from which features are made. If the mean of
// prepared rows is 0, they have one dimension less. A rotation, or dropout of channels, can
// change that mean, so all dimensions are kept then. A single power keeps all dimensions, too:
// it has no lower terms beside which the rounding errors of a change of basis would be small.
func (u *Geometry) FeatureWidth() int {
	return u.Spec.FeatureWidth(u.D, u.Rope != nil || u.Drop != nil && u.Drop.Kind != attention.TokenDrop)
}

// prepareRows is prepare for rows of dst (stride ld, width da).
func (u *Task) prepareRows(dst []float, ld int, s *headRows, i0, i1 int) {
	for i := i0; i < i1 && s.isPrepared; i++ {
		copy(dst[(i-i0)*ld:][:u.PreparedWidth], s.x.Row(i))
	}
	if s.isPrepared {
		return
	}
	if u.isScaling(s) {
		u.scaleRows(tensor.Mat{Data: dst, Rows: i1 - i0, Cols: u.D, Stride: ld}, tensor.Mat{Data: s.x.Data[min(i0*s.x.Stride, len(s.x.Data)):], Cols: u.D, Stride: s.x.Stride}, s, i0)
		return
	}
	for i := i0; i < i1; i += stretch {
		n := min(stretch, i1-i)
		to := dst[(i-i0)*ld:]
		mark := u.Arena.Mark()
		ldx := scratch.Stride[float](n)
		if u.Spec.Features != nil {
			y := arena.Take[float](u.Arena, u.PreparedWidth*ldx)
			u.mapTokens(y, ldx, s, i, i+n)
			u.Table.Transpose(to, ld, y, ldx, u.PreparedWidth, n)
			u.Arena.Reset(mark)
			continue
		}
		x := arena.Take[float](u.Arena, u.D*ldx)
		u.prepareUnmapped(x, ldx, s, i, i+n)
		if u.Spec.IsElementwise() {
			u.mapColumns(x, ldx, n)
			u.Table.Transpose(to, ld, x, ldx, u.D, n)
		} else {
			rows := arena.Take[float](u.Arena, n*u.D)
			u.Table.Transpose(rows, u.D, x, ldx, u.D, n)
			for r := range n {
				u.Spec.Map.Map(to[r*ld:][:u.PreparedWidth], rows[r*u.D:][:u.D])
				if s.drop.Drop != nil && s.drop.Kind == attention.ProductDrop {
					DropProducts(&s.drop, to[r*ld:][:u.PreparedWidth], u.D, i+r)
				}
			}
		}
		for r := range n {
			if s.isMasked(i + r) {
				clear(to[r*ld:][:u.PreparedWidth])
			}
		}
		u.Arena.Reset(mark)
	}
}

// prepareUnmapped sets columns of x [d, ld] to tokens as they are before the feature
// map.
func (u *Task) prepareUnmapped(x []float, ld int, s *headRows, i0, i1 int) {
	n := i1 - i0
	u.Table.Transpose(x, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.D)
	u.normalise(x, ld, n, s, s.scale)
	if u.Rope != nil {
		TurnColumns(u.Rope, u.Table, u.Arena, x, ld, s.pos+i0, n, false)
	}
	if s.drop.Drop != nil {
		DropOut(&s.drop, x, ld, 1, u.D, i0, n)
	}
}

// mapColumns applies the feature map, which is elementwise, to columns of x.
func (u *Geometry) mapColumns(x []float, ld, n int) {
	if u.Spec.Map == nil {
		return
	}
	for c := range u.D {
		row := x[c*ld:][:n]
		u.Spec.Map.Map(row, row)
	}
}

// prepareGrad sets rows i0 ≤ i < i1 of dx from the gradient of the prepared tokens, columns dy
// [da, ld], which it overwrites. Rows of masked tokens become zero. It returns the derivative
// with respect to the scale, if the scale is learned.
func (u *Task) prepareGrad(dx tensor.Mat, dy []float, ld int, s *headRows, i0, i1 int) (dscale float64) {
	n := i1 - i0
	if n <= 0 {
		return 0
	}
	if s.isPrepared {
		u.Table.Transpose(dx.Data[i0*dx.Stride:], dx.Stride, dy, ld, u.PreparedWidth, n)
		return 0
	}
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	x := arena.Take[float](u.Arena, u.D*ld)
	switch {
	case u.Spec.Features != nil:
		mapped := dy
		dy = arena.Take[float](u.Arena, u.D*ld)
		u.mapTokensGrad(dy, mapped, ld, s, i0, i1)
	case u.Spec.Map == nil:
	case u.Spec.IsElementwise():
		u.prepareUnmapped(x, ld, s, i0, i1)
		for c := range u.D {
			row := dy[c*ld:][:n]
			u.Spec.Map.Grad(row, row, x[c*ld:][:n])
		}
	default:
		u.prepareUnmapped(x, ld, s, i0, i1)
		rows, dmapped, dmap := arena.Take[float](u.Arena, n*u.D), arena.Take[float](u.Arena, n*u.PreparedWidth), arena.Take[float](u.Arena, n*u.D)
		u.Table.Transpose(rows, u.D, x, ld, u.D, n)
		u.Table.Transpose(dmapped, u.PreparedWidth, dy, ld, u.PreparedWidth, n)
		for r := range n {
			if s.drop.Drop != nil && s.drop.Kind == attention.ProductDrop {
				DropProducts(&s.drop, dmapped[r*u.PreparedWidth:][:u.PreparedWidth], u.D, i0+r)
			}
			u.Spec.Map.Grad(dmap[r*u.D:][:u.D], dmapped[r*u.PreparedWidth:][:u.PreparedWidth], rows[r*u.D:][:u.D])
		}
		dy = arena.Take[float](u.Arena, u.D*ld)
		u.Table.Transpose(dy, ld, dmap, u.D, n, u.D)
	}
	if s.drop.Drop != nil {
		DropOut(&s.drop, dy, ld, 1, u.D, i0, n)
	}
	if u.Rope != nil {
		TurnColumns(u.Rope, u.Table, u.Arena, dy, ld, s.pos+i0, n, true)
	}
	u.Table.Transpose(x, ld, s.x.Data[i0*s.x.Stride:], s.x.Stride, n, u.D)
	if u.Spec.Tau != nil {
		unscaled := arena.Take[float](u.Arena, u.D*ld)
		copy(unscaled, x)
		u.normalise(unscaled, ld, n, s, 1)
		for c := range u.D {
			dscale += float64(u.Table.Dot(dy[c*ld:][:n], unscaled[c*ld:]))
		}
	}
	if s.stats != nil {
		factor, _ := u.Spec.Norm.InvertLength(s.stats.Length) // wideGrad does the rest
		scaleColumns(u.Table, dy, ld, u.D, n, float(factor)*s.scale)
	} else {
		normaliseGrad(u.Table, u.Spec.Norm, dy, x, ld, u.D, n, s.scale)
	}
	u.Table.Transpose(dx.Data[i0*dx.Stride:], dx.Stride, dy, ld, u.D, n)
	for i := i0; i < i1; i++ {
		if s.isMasked(i) {
			clear(dx.Row(i))
		}
	}
	return dscale
}

// isScaling reports whether prepared tokens are just the tokens times the scale.
func (u *Geometry) isScaling(s *headRows) bool {
	return u.Spec.Norm == attention.NoNorm && u.Spec.Features == nil && !u.Spec.HasMap() && u.Rope == nil && s.drop.Drop == nil && s.stats == nil
}

// scaleRows sets rows of dst, tokens from i0 on, to rows of x times the scale.
// Rows of masked tokens become zero.
func (u *Task) scaleRows(dst, x tensor.Mat, s *headRows, i0 int) {
	if dst.Rows == 0 {
		return
	}
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	scale := u.TakeScratch(dst.Rows)
	for r := range scale {
		scale[r] = s.scale
	}
	u.Table.ScaleRows(dst.Data, dst.Stride, x.Data, x.Stride, dst.Cols, scale)
	for r := 0; r < dst.Rows && s.mask != nil; r++ {
		if s.isMasked(i0 + r) {
			clear(dst.Row(r))
		}
	}
}

// addRows adds to rows of dst, tokens from i0 on, rows y times the scale. Rows of
// masked tokens stay.
func (u *Task) addRows(dst tensor.Mat, y []float, ld int, s *headRows, i0 int) {
	if s.mask != nil {
		for r := range dst.Rows {
			if !s.isMasked(i0 + r) {
				u.Table.Axpy(dst.Row(r), s.scale, y[r*ld:])
			}
		}
		return
	}
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	scale := u.TakeScratch(dst.Rows)
	for r := range scale {
		scale[r] = s.scale
	}
	u.Table.MixRows(dst.Data, dst.Stride, dst.Data, dst.Stride, ones(u.Arena, dst.Rows), y, ld, scale, dst.Cols)
}

// prepareRowsGrad is prepareGrad from rows dy (stride ld, width da).
func (u *Task) prepareRowsGrad(dx tensor.Mat, dy []float, ld int, s *headRows, i0, i1 int) (dscale float64) {
	if !s.isPrepared && u.isScaling(s) && u.Spec.Tau == nil {
		if u.Adds {
			u.addRows(dx.Slice(i0, i1), dy, ld, s, i0)
			return 0
		}
		u.scaleRows(dx.Slice(i0, i1), tensor.Mat{Data: dy, Cols: u.D, Stride: ld}, s, i0)
		return 0
	}
	for i := i0; i < i1; i += stretch {
		n := min(stretch, i1-i)
		mark := u.Arena.Mark()
		ldx := scratch.Stride[float](n)
		columns := arena.Take[float](u.Arena, u.PreparedWidth*ldx)
		u.Table.Transpose(columns, ldx, dy[(i-i0)*ld:], ld, n, u.PreparedWidth)
		dscale += u.prepareGrad(dx, columns, ldx, s, i, i+n)
		u.Arena.Reset(mark)
	}
	return dscale
}

// The rows that the direct form works on.

// PrepareQ sets rows of dst (stride ld, width da) to the prepared queries i0 ≤ i < i1 of head g
// of the group.
func (u *Task) PrepareQ(dst []float, ld, g, i0, i1 int) {
	s := u.QuerySide(g)
	u.prepareRows(dst, ld, &s, i0, i1)
}

// PrepareK sets rows of dst to the prepared keys j0 ≤ j < j1.
func (u *Task) PrepareK(dst []float, ld, j0, j1 int) {
	s := u.KeySide()
	u.prepareRows(dst, ld, &s, j0, j1)
}

// GradQ sets dq of queries i0 ≤ i < i1 of head g from the gradients of the prepared queries,
// rows of da, and adds to dscale.
func (u *Task) GradQ(g, i0, i1 int, da []float, ld int) {
	s := u.QuerySide(g)
	u.DScale[g] += u.prepareRowsGrad(u.DQ[g], da, ld, &s, i0, i1)
}

// GradK sets dk of keys j0 ≤ j < j1 from the gradients of the prepared keys, rows of db.
func (u *Task) GradK(j0, j1 int, db []float, ld int) {
	s := u.KeySide()
	u.prepareRowsGrad(u.DK, db, ld, &s, j0, j1)
}

// featureBlock returns tokens i0 ≤ i < i1 of a side, ready for Map. Masked tokens are zero,
// whatever they hold.
func (u *Task) featureBlock(s *headRows, i0, i1 int) attention.FeatureBlock {
	n := i1 - i0
	b := attention.FeatureBlock{Scratch: arena.Of[float]{Arena: u.Arena}, Keys: s.keys, Head: s.head, First: u.KeyHead * len(u.Q), D: u.D, N: n, Stride: scratch.Stride[float](n)}
	b.X, b.Y = u.TakeScratch(u.D*b.Stride), u.TakeScratch(u.PreparedWidth*b.Stride)
	u.prepareUnmapped(b.X, b.Stride, s, i0, i1)
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for c := range u.D {
				b.X[c*b.Stride+i-i0] = 0
			}
		}
	}
	return b
}

// mapTokens sets columns of dst [da, ld] to the features of tokens i0 ≤ i < i1.
func (u *Task) mapTokens(dst []float, ld int, s *headRows, i0, i1 int) {
	mark := u.Arena.Mark()
	b := u.featureBlock(s, i0, i1)
	u.Spec.Features.Map(&b)
	if u.hasGates(s) {
		u.applyGates(b.Y, b.Stride, i0, i1)
	}
	for f := range u.PreparedWidth {
		copy(dst[f*ld:][:b.N], b.Y[f*b.Stride:])
	}
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for f := range u.PreparedWidth {
				dst[f*ld+i-i0] = 0
			}
		}
	}
	u.Arena.Reset(mark)
}

// mapTokensGrad sets columns of dx [d, ld] from columns dy [da, ld], the gradient
// of the features of tokens i0 ≤ i < i1.
func (u *Task) mapTokensGrad(dx, dy []float, ld int, s *headRows, i0, i1 int) {
	mark := u.Arena.Mark()
	b := u.featureBlock(s, i0, i1)
	b.DX, b.DParams = u.TakeScratch(u.D*b.Stride), u.DParams
	for f := range u.PreparedWidth {
		copy(b.Y[f*b.Stride:][:b.N], dy[f*ld:])
	}
	for i := i0; i < i1 && s.mask != nil; i++ {
		if s.isMasked(i) {
			for f := range u.PreparedWidth {
				b.Y[f*b.Stride+i-i0] = 0
			}
		}
	}
	if u.hasGates(s) {
		u.gateGrad(&b, i0)
	}
	u.Spec.Features.Grad(&b)
	for c := range u.D {
		copy(dx[c*ld:][:b.N], b.DX[c*b.Stride:])
	}
	u.Arena.Reset(mark)
}

// Normalise normalises the columns of x [d, ld] and multiplies them by scale.
func Normalise(t *kernel.Table[float], norm attention.Norm, x []float, ld, d, n int, scale float) {
	if norm == attention.NoNorm {
		scaleColumns(t, x, ld, d, n, scale)
		return
	}
	length := scale * float(norm.MaxLen(d))
	if norm.IsCentred() {
		t.Standardise(x, ld, d, n, length)
	} else {
		t.Normalise(x, ld, d, n, length)
	}
}

// normaliseGrad replaces dy, the gradient of the normalised columns of x, by the
// gradient of x. It overwrites x.
func normaliseGrad(t *kernel.Table[float], norm attention.Norm, dy, x []float, ld, d, n int, scale float) {
	if norm == attention.NoNorm {
		scaleColumns(t, dy, ld, d, n, scale)
		return
	}
	if norm.IsCentred() {
		t.Centre(x, ld, d, n)
		t.Centre(dy, ld, d, n)
	}
	t.NormaliseGrad(dy, x, ld, d, n, scale*float(norm.MaxLen(d)))
}

func scaleColumns(t *kernel.Table[float], x []float, ld, d, n int, scale float) {
	if scale == 1 {
		return
	}
	for c := range d {
		row := x[c*ld:][:n]
		t.Scale(row, scale, row)
	}
}

// NormStats holds the statistics of the queries or keys of one head of a sequence. Masked
// tokens are left out.
type NormStats struct {
	Mean   []float64 // mean to subtract: of each channel, or one for all; nil: none
	Length float64   // largest 2-norm of a centred row
	Place  int       // the first token with that norm
}

// normaliseWide is normalise with statistics.
func normaliseWide(t *kernel.Table[float], norm attention.Norm, s *NormStats, x []float, ld, d, n int, scale float) {
	factor, _ := norm.InvertLength(s.Length)
	if norm == attention.ChannelCentred {
		t.Centre(x, ld, d, n)
	}
	for c := range d {
		row := x[c*ld:][:n]
		var mean float64
		switch {
		case len(s.Mean) == 1:
			mean = s.Mean[0]
		case s.Mean != nil:
			mean = s.Mean[c]
		}
		for i, y := range row {
			row[i] = float((float64(y) - mean) * factor * float64(scale))
		}
	}
}

// CentreRow sets dst [D] to x [D] minus the mean that norm subtracts.
func CentreRow(dst []float64, x []float, norm attention.Norm, s *NormStats) {
	var mean float64
	switch {
	case norm == attention.ChannelCentred:
		for _, y := range x {
			mean += float64(y) - float64(x[0])
		}
		mean = mean/float64(len(x)) + float64(x[0])
	case len(s.Mean) == 1:
		mean = s.Mean[0]
	}
	for c, y := range x {
		if len(s.Mean) > 1 {
			mean = s.Mean[c]
		}
		dst[c] = float64(y) - mean
	}
}
