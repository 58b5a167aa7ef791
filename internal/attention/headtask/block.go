package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// gradRows is PanelRows for gradients, whose products sum over the rows of a
// panel: away from the diagonal more of them are worth more than the cache.
const gradRows = 2 * PanelRows

// diagonalRows is the same for both on the diagonal, where what a panel computes
// beyond it counts.
const diagonalRows = PanelRows / 2

// block is a rectangle of the attention matrix: prepared queries against
// prepared keys. An invisible pair has weight exactly 0, and the contents of its
// key and value reach nothing.
type block struct {
	a   []float // prepared queries [nq, lda]
	lda int
	// hasColumns says that a query is a column instead: a is [da, lda]. Gradients
	// need rows.
	hasColumns bool
	bt         []float // prepared keys, transposed panel by panel [da, ldb]
	ldb        int     // at least kernel.Pad of a panel's keys; elements beyond them are not used

	panel   int // keys of a panel
	Nq, nk  int
	diag    int    // row r sees keys c ≤ r+diag; nk and more: all
	mask    []bool // [nk] unmasked keys; nil: all
	keep    []bool // pairs: keep[r*keepRow+c]; nil: all
	keepRow int
	band    int  // number of last visible keys that a row sees; 0: all
	twoEnds bool // the band also counts positions beyond the last key

	first bool // the products with values are set, not added to

	// With decay, row r has the position min(rowPlace+r, last token) in Decays, or places[r] if
	// places is set, and key c has the position key+c.
	Decays        *LogDecays // nil: no decay
	rowPlace, key int
	places        []int
	log           float64 // factor of log-decays in scores of the exponential
}

// CountVisible returns the number of keys that row r sees by position, before masks.
func (b *block) CountVisible(r int) int { return min(max(r+b.diag+1, 0), b.nk) }

// lowest returns the first key that row r could see by position.
func (b *block) lowest(r int) int {
	if b.band == 0 {
		return 0
	}
	end := b.CountVisible(r)
	if b.twoEnds {
		end = r + b.diag + 1
	}
	return min(max(end-b.band, 0), b.nk)
}

func (b *block) IsVisible(r, c int) bool {
	return c < b.CountVisible(r) && c >= b.lowest(r) && (b.mask == nil || b.mask[c]) && (b.keep == nil || b.keep[r*b.keepRow+c])
}

// maskRow overwrites with x what row r does not see, and reports whether that was
// anything among the visible keys.
func (b *block) maskRow(row []float, r int, x float) bool {
	n := b.CountVisible(r)
	if beyond := row[n:]; x == 0 {
		clear(beyond)
	} else {
		for c := range beyond {
			beyond[c] = x
		}
	}
	hidden := false
	for c := range row[:b.lowest(r)] {
		row[c], hidden = x, true
	}
	if b.mask != nil {
		for c, exists := range b.mask[:n] {
			if !exists {
				row[c], hidden = x, true
			}
		}
	}
	if b.keep != nil {
		for c, kept := range b.keep[r*b.keepRow:][:n] {
			if !kept {
				row[c], hidden = x, true
			}
		}
	}
	return hidden
}

// polyBlock adds to o [nq, ldo] the values v [nk, ldv] times their weights, or
// sets it to them where a row of a panel sees any, and adds to den the sums of
// weights, where weights are the kernel polynomial of scores. Rows of o and v hold kernel.Pad(dv) elements.
func (u *Task) polyBlock(b *block, v []float, ldv int, o []float, ldo int, den []float) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	coef := u.Coefficients()
	ld := scratch.Stride[float](b.nk)
	panel := b.panelHeight(MaxRows(b.nk))
	size := min(panel, b.Nq)
	w, sum := arena.Take[float](u.Arena, size*ld), arena.Take[float](u.Arena, size)
	decay, left := u.Fader(b), w // what is left of weights
	if b.Decays != nil {
		left = arena.Take[float](u.Arena, size*ld)
	}
	for r0 := 0; r0 < b.Nq; r0 += panel {
		rows, cols := u.ComputeScores(b, r0, panel, w, ld)
		clear(sum)
		together := b.countEqualRows(r0, rows, cols)
		for r := 0; r < rows; r += together {
			row, n := w[r*ld:], b.CountVisible(r0+r)
			u.Weigh(row, row, ld, n, coef, sum[r:][:together])
			clear(row[n:cols])
		}
		for r := range rows {
			row := w[r*ld:][:b.CountVisible(r0+r)]
			changed := b.HasMask() && b.maskRow(row, r0+r, 0)
			if b.Decays != nil {
				to := left[r*ld:]
				decay.fade(b, r0+r, to, row)
				clear(to[len(row):cols])
				row, changed = to[:len(row)], true
			}
			if changed {
				sum[r] = u.Table.Sum(row)
			}
			den[r0+r] += sum[r]
		}
		u.addProduct(b, r0, rows, cols, left, ld, v, ldv, kernel.Pad(u.Dv), o, ldo)
	}
}

// panelHeight returns how many rows to work on at a time, most of them off the
// diagonal.
func (b *block) panelHeight(most int) int {
	if b.CountVisible(0) < b.nk {
		return diagonalRows
	}
	return most
}

// countEqualRows returns how many rows of a panel can be worked on at a time: all
// where they see the same keys, else one.
func (b *block) countEqualRows(r0, rows, cols int) int {
	if b.CountVisible(r0) == cols {
		return rows
	}
	return 1
}

// HasMask reports whether a row may not see some key that its position would let it see.
func (b *block) HasMask() bool { return b.mask != nil || b.keep != nil || b.band > 0 }

// tooLarge is the sum of a row's weights in a block from which on its power is
// set anew. Below it nothing overflows, and above it weights of before would
// count for nothing.
const tooLarge = 1 << 40

// softmaxBlock is polyBlock for the exponential: a weight is 2 to the power of factor times the
// score. The weights of a row are divided by the row's power of 2, in base and top [nq], to
// keep them in range. At first that is the power of the row's first score, rounded up. If
// weights leave the range, the power of the largest score replaces it, and o and den are
// rescaled (Milakov and Gimelshein 2018, online normalizer calculation for softmax, algorithm
// 3). If den is 0 nothing is rescaled.
func (u *Task) softmaxBlock(b *block, factor float, v []float, ldv int, o []float, ldo int, den, base, top []float) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	ld := scratch.Stride[float](b.nk)
	panel := b.panelHeight(MaxRows(b.nk))
	size := min(panel, b.Nq)
	w, sum := arena.Take[float](u.Arena, size*ld), arena.Take[float](u.Arena, size)
	decay := u.Fader(b)
	since, room := b.sinks(u.Arena, size)
	for r0 := 0; r0 < b.Nq; r0 += panel {
		rows, cols := u.ComputeScores(b, r0, panel, w, ld)
		u.AgeScores(&decay, b, r0, rows, w, ld, since)
		base, top, sum := base[r0:][:rows], top[r0:][:rows], sum[:rows]
		u.maskScores(b, r0, rows, w, ld)
		for r := range rows {
			if n := b.CountVisible(r0 + r); n > 0 && den[r0+r] == 0 {
				base[r], top[r] = u.rowPower(w[r*ld:][:n], b.likelyMax(w[r*ld:][:n]), factor, since, r)
			}
			rowscale.Lower(w[r*ld:][:b.CountVisible(r0+r)], base[r])
		}
		if u.exponentials(b, factor, r0, w, ld, cols, subtractDecay(top, since, room), sum) {
			u.ComputeScores(b, r0, panel, w, ld)
			u.AgeScores(&decay, b, r0, rows, w, ld, since)
			u.maskScores(b, r0, rows, w, ld)
			for r := range rows {
				row := w[r*ld:][:b.CountVisible(r0+r)]
				if !(sum[r] < tooLarge) {
					before := rowscale.Power{Base: base[r], Top: top[r]}
					base[r], top[r] = u.rowPower(row, u.Table.Max(row), factor, since, r)
					fade := float(math.Exp2(before.Exceed(rowscale.Power{Base: base[r], Top: top[r]}, factor)))
					den[r0+r] *= fade
					u.Table.Scale(o[(r0+r)*ldo:][:u.Dv], fade, o[(r0+r)*ldo:])
				}
				rowscale.Lower(row, base[r])
			}
			u.exponentials(b, factor, r0, w, ld, cols, subtractDecay(top, since, room), sum)
		}
		for r, s := range sum {
			den[r0+r] += s
		}
		u.addProduct(b, r0, rows, cols, w, ld, v, ldv, kernel.Pad(u.Dv), o, ldo)
	}
}

// maskScores overwrites with -Inf the scores of a panel of rows that a row could
// see by position and does not.
func (u *Geometry) maskScores(b *block, r0, rows int, w []float, ld int) {
	if !b.HasMask() {
		return
	}
	for r := range rows {
		b.maskRow(w[r*ld:][:b.CountVisible(r0+r)], r0+r, float(math.Inf(-1)))
	}
}

// likelyMax returns a score of a row that is seldom far below the largest: with
// decay the last, which loses least.
func (b *block) likelyMax(row []float) float {
	if b.Decays != nil {
		return row[len(row)-1]
	}
	return row[0]
}

// rowPower returns the power of row r of scores times factor. From all scores
// decay has taken since[r]: the power of score x, or of the largest score if x is
// -Inf; 0 if all are.
func (u *Geometry) rowPower(row []float, x, factor float, since []float, r int) (base, top float) {
	if lowest := float(math.Inf(-1)); x == lowest {
		if x = u.Table.Max(row); x == lowest {
			return 0, 0
		}
	}
	gone := 0.0
	if since != nil {
		if gone = float64(since[r]); math.IsInf(gone, -1) {
			return 0, 0
		}
	}
	p := rowscale.PowerOf(x, factor, gone)
	return p.Base, p.Top
}

// exponentials turns the scores of a panel of rows, times factor, into weights
// over 2^top, which are 0 where a row does not see, sets sum to their sums and
// reports whether any of those is too large.
func (u *Geometry) exponentials(b *block, factor float, r0 int, w []float, ld, cols int, top, sum []float) bool {
	clear(sum)
	together := b.countEqualRows(r0, len(top), cols)
	for r := 0; r < len(top); r += together {
		row, n := w[r*ld:], b.CountVisible(r0+r)
		u.Table.ExpRows(row, ld, n, factor, top[r:][:together], sum[r:])
		clear(row[n:cols])
	}
	for _, s := range sum {
		if !(s < tooLarge) {
			return true
		}
	}
	return false
}

// gradient holds the inputs and results of the backward pass of a block. Rows of prepared
// queries and keys and of their gradients have the stride lda of the block's queries, at least
// kernel.Pad(da), and are zero beyond da.
type gradient struct {
	b  []float // prepared keys [nk, lda]
	vt []float // values, transposed [dv, ldb]

	// For a polynomial do holds do_i/g_i and w holds -(do_i·o_i)/g_i, with the denominator g_i.
	// For the exponential they hold do_i and -(do_i·o_i), and top holds the logarithms of the
	// denominators to base 2, relative to base times log₂e. Rows of do are zero beyond dv.
	do     []float // [nq, ldo]
	ldo    int     // at least kernel.Pad(dv)
	w, top []float // [nq]
	base   []float // [nq] scores to which the scores of a row are relative; nil: 0

	Age []float // [kernel.Pad(nk)] sums of weights times w; added to; nil: not wanted

	da, Db []float // [nq, lda], [nk, lda]; added to
	Dv     []float // [nk, ldo]; added to
}

// blockGrad adds the gradients of one block to x. With weights W = f(S), S = A·Bᵀ, and do and w
// as in gradient:
//
//	dW = do·Vᵀ + w,  dS = f'(S)∘dW,  da += dS·B,  db += dSᵀ·A,  dv += Wᵀ·do
func (u *Task) blockGrad(b *block, x *gradient) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	var coef, slope []float
	if !u.Spec.Exp {
		coef, slope = u.Coefficients(), u.derivative()
	}
	ld := scratch.Stride[float](b.nk)
	panel := b.panelHeight(gradRows)
	most := min(panel, b.Nq)
	s, w, dw := arena.Take[float](u.Arena, most*ld), arena.Take[float](u.Arena, most*ld), arena.Take[float](u.Arena, most*ld)
	sum := arena.TakeZeros[float](u.Arena, most)
	width := kernel.Pad(u.PreparedWidth)
	decay := u.Fader(b)
	since, room := b.sinks(u.Arena, most)
	for r0 := 0; r0 < b.Nq; r0 += panel {
		rows, cols := u.ComputeScores(b, r0, panel, s, ld)
		do := x.do[r0*x.ldo:]
		u.Table.Block(rows, kernel.Pad(cols), u.Dv, do, x.ldo, 1, x.vt, b.ldb, dw, ld, false)
		if u.Spec.Exp {
			u.AgeScores(&decay, b, r0, rows, s, ld, since)
			for r := 0; r < rows && x.base != nil; r++ {
				rowscale.Lower(s[r*ld:][:cols], x.base[r0+r])
			}
			u.Table.ExpRows(s, ld, cols, float(math.Log2E), subtractDecay(x.top[r0:][:rows], since, room), sum)
			w = s
		} else {
			u.Weigh(w, s, ld, cols, coef, sum[:rows])
			u.slopes(s, s, ld, cols, slope, sum[:rows])
			for r := 0; r < rows && b.Decays != nil; r++ {
				f := decay.Factors(b, r0+r)
				u.Table.Mul(w[r*ld:][:len(f)], w[r*ld:], f)
				u.Table.Mul(s[r*ld:][:len(f)], s[r*ld:], f)
			}
		}
		u.Table.MulRows(dw, s, ld, cols, x.w[r0:][:rows])
		if b.HasMask() || b.CountVisible(r0) < cols {
			for r := range rows {
				b.maskRow(w[r*ld:][:cols], r0+r, 0)
				b.maskRow(dw[r*ld:][:cols], r0+r, 0)
			}
		}
		u.sumWeights(x, r0, rows, cols, w, ld)
		u.addProduct(b, r0, rows, cols, dw, ld, x.b, b.lda, width, x.da, b.lda)
		u.Table.Block(cols, width, rows, dw, 1, ld, b.a[r0*b.lda:], b.lda, x.Db, b.lda, true)
		u.Table.Block(cols, kernel.Pad(u.Dv), rows, w, 1, ld, do, x.ldo, x.Dv, x.ldo, true)
	}
}

// measureFarRows adds the weights of a block's keys to far rows.
func (u *Task) measureFarRows(b *block, far *rowscale.FarRows) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	ld := scratch.Stride[float](b.nk)
	panel := b.panelHeight(gradRows)
	most := min(panel, b.Nq)
	s := arena.Take[float](u.Arena, most*ld)
	decay := u.Fader(b)
	since, _ := b.sinks(u.Arena, most)
	for r0 := 0; r0 < b.Nq; r0 += panel {
		rows, _ := u.ComputeScores(b, r0, panel, s, ld)
		u.AgeScores(&decay, b, r0, rows, s, ld, since)
		u.maskScores(b, r0, rows, s, ld)
		for r := range rows {
			gone := 0.0
			if since != nil {
				gone = float64(since[r])
			}
			far.Add(u.Table, r0+r, s[r*ld:][:b.CountVisible(r0+r)], math.Log2E, gone)
		}
	}
}

// ComputeScores sets s [rows, ld] to the scores of a panel of at most most rows from r0 on, for
// the columns that its last row sees by position. It returns the size of the panel.
func (u *Geometry) ComputeScores(b *block, r0, most int, s []float, ld int) (rows, cols int) {
	rows = min(most, b.Nq-r0)
	cols = b.CountVisible(r0 + rows - 1)
	ars, acs := b.lda, 1
	if b.hasColumns {
		ars, acs = 1, b.lda
	}
	for c := 0; c < cols; c += b.panel {
		n := kernel.Pad(min(b.panel, cols-c))
		u.Table.Block(rows, n, u.PreparedWidth, b.a[r0*ars:], ars, acs, b.bt[c/b.panel*u.PreparedWidth*b.ldb:], b.ldb, s[c:], ld, false)
	}
	return rows, cols
}

// addProduct adds w [rows, cols] times n columns of x [cols, ldx] to the
// rows of o from r0 on, or sets them to it in a first block. A row of x that is
// not finite is added only to the rows that see it, since 0·∞ is not 0.
func (u *Task) addProduct(b *block, r0, rows, cols int, w []float, ld int, x []float, ldx, n int, o []float, ldo int) {
	if cols == 0 {
		return
	}
	o = o[r0*ldo:]
	// All rows see what comes before this, unless it does not exist and is zero.
	first := b.CountVisible(r0)
	if b.keep != nil || b.band > 0 {
		first = 0
	}
	if first >= cols {
		u.finiteProduct(b, rows, cols, w, ld, x, ldx, n, o, ldo)
		return
	}
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	// A number times zero is zero, if it is finite.
	zeros, none := arena.Take[float](u.Arena, cols), arena.TakeZeros[float](u.Arena, n)
	u.Table.Dots(zeros[first:], x[first*ldx:], ldx, none)
	finite := func(c int) bool { return zeros[c] == 0 }
	c0 := first
	for c0 < cols && finite(c0) {
		c0++
	}
	if c0 == cols {
		u.finiteProduct(b, rows, cols, w, ld, x, ldx, n, o, ldo)
		return
	}
	tame := arena.Take[float](u.Arena, cols*ldx)
	copy(tame, x)
	for c := c0; c < cols; c++ {
		if !finite(c) {
			clear(tame[c*ldx:][:n])
		}
	}
	u.finiteProduct(b, rows, cols, w, ld, tame, ldx, n, o, ldo)
	for c := c0; c < cols; c++ {
		if finite(c) {
			continue
		}
		for r := range rows {
			if b.IsVisible(r0+r, c) {
				u.Table.Axpy(o[r*ldo:][:n], w[r*ld+c], x[c*ldx:])
			}
		}
	}
}

// finiteProduct is product for finite rows of x, and rows of o from the first of
// the panel on.
func (u *Geometry) finiteProduct(b *block, rows, cols int, w []float, ld int, x []float, ldx, n int, o []float, ldo int) {
	if rows > 1 {
		u.Table.Block(rows, n, cols, w, ld, 1, x, ldx, o, ldo, !b.first)
		return
	}
	if b.first {
		clear(o[:n])
	}
	u.Table.Mix(o[:n], w[:cols], cols, x, ldx, nil, 0)
}

// Coefficients returns the coefficients of the kernel polynomial in scratch memory.
func (u *Task) Coefficients() []float {
	c := arena.Take[float](u.Arena, len(u.Spec.Coef))
	for l, x := range u.Spec.Coef {
		c[l] = float(x)
	}
	return c
}

// derivative returns the coefficients of its derivative.
func (u *Task) derivative() []float {
	c := arena.TakeZeros[float](u.Arena, max(u.Spec.Degree(), 1))
	for l := 1; l <= u.Spec.Degree(); l++ {
		c[l-1] = float(float64(l) * u.Spec.Coef[l])
	}
	return c
}

// Weigh sets the first n elements of each row of dst (stride ld) to the weights of the scores
// s, and adds the weights of each row to its element of sum.
func (u *Geometry) Weigh(dst, s []float, ld, n int, coef, sum []float) {
	f := u.Spec.Similarity
	if f == nil {
		u.Table.PolyRows(dst, s, ld, n, coef, sum)
		return
	}
	for r := range sum {
		row := dst[r*ld:][:n]
		f.F(row, s[r*ld:][:n])
		sum[r] += u.Table.Sum(row)
	}
}

// slopes is weigh for derivatives; sum is scratch.
func (u *Geometry) slopes(dst, s []float, ld, n int, slope, sum []float) {
	f := u.Spec.Similarity
	if f == nil {
		u.Table.PolyRows(dst, s, ld, n, slope, sum)
		return
	}
	for r := range sum {
		f.Slope(dst[r*ld:][:n], s[r*ld:][:n])
	}
}
