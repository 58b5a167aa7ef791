package attention

import (
	"math"

	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// A band is a causal exponential in which a query sees the last Spec.band keys
// alone, those that do not exist among them. A few queries at a time meet the
// keys that any of them sees, so that the work is linear in the tokens. The bits
// of a row depend on its own keys and not on those beside them: where the keys
// begin that it shares a block with is told by nothing.

// bandRows is the number of queries that are answered at a time.
func (u *unit[T]) bandRows() int { return min(max(u.spec.band, panelRows), queryBlock) }

// lowest returns the first key that query i could see by position.
func (u *unit[T]) lowest(i int) int {
	if u.spec.band == 0 {
		return 0
	}
	end := u.seen(i)
	if u.spec.isSymmetric {
		end = i + u.off + 1
	}
	return min(max(end-u.spec.band, 0), u.m)
}

// bandBlock returns n queries from i0 on, the rows of a, against keys
// lo ≤ j < lo+nk, transposed in bt.
func (u *unit[T]) bandBlock(a []T, lda, i0, n int, bt []T, ldb, lo, nk int) block[T] {
	b := u.block(a, lda, i0, n, bt, ldb, lo, nk)
	b.panel, b.first = nk, true
	if len(u.logG.Data) > 0 {
		b.rates = arena.Take[T](u.ar, nk)
		for j := range b.rates {
			b.rates[j] = T(u.rate(lo + j))
		}
	}
	return b
}

// fadeBand adds to the scores of rows from r0 on the logarithms of their decay,
// which is summed back from the last key that a row sees.
func (u *unit[T]) fadeBand(b *block[T], r0, rows int, s []T, ld int) {
	for r := range rows {
		row, lo := s[r*ld:], b.lowest(r0+r)
		last := b.visible(r0+r) - 1
		for last >= lo && !b.sees(r0+r, last) {
			last--
		}
		var sum float64
		for c := last; c >= lo; c-- {
			row[c] += T(sum)
			sum = max(sum+float64(b.rates[c]), slowest)
		}
	}
}

// eachBand calls f for every piece of the queries, i0 ≤ i < i0+n. Several workers
// take them where the unit has several; t is nil where it has one.
func (u *unit[T]) eachBand(stages int, f func(u *unit[T], t *team, piece, i0, n int)) {
	size := u.bandRows()
	count := pieces(u.n, size)
	if u.workers > 1 {
		u.together(count, stages, func(u *unit[T], t *team) {
			for i := t.take(); i < t.n; i = t.take() {
				f(u, t, i, i*size, min(size, u.n-i*size))
			}
		})
		return
	}
	for i := range count {
		f(u, nil, i, i*size, min(size, u.n-i*size))
	}
}

func (u *unit[T]) bandForward() {
	if u.n == 1 {
		u.bandAttend(0, 1) // without a function value, so that a token allocates nothing
		return
	}
	u.eachBand(0, func(u *unit[T], _ *team, _, i0, n int) { u.bandAttend(i0, n) })
}

// bandAttend sets the outputs of n queries of every head from i0 on, and the
// logarithms of their denominators.
func (u *unit[T]) bandAttend(i0, n int) {
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	lo := u.lowest(i0)
	nk := u.seen(i0+n-1) - lo
	ld, lda, ldo := scratch.Stride[T](nk), scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	bt, v := u.take(u.da*ld), u.take(nk*ldo)
	keys := u.keySide()
	u.prepare(bt, ld, &keys, lo, lo+nk)
	u.copyV(v, ldo, lo, lo+nk)
	a, s, o, over := u.take(n*lda), u.take(n*ld), u.take(n*ldo), u.take(n)
	for g := range u.q {
		mark := u.ar.Mark()
		u.prepareQ(a, lda, g, i0, i0+n)
		b := u.bandBlock(a, lda, i0, n, bt, ld, lo, nk)
		cols := u.bandWeights(&b, s, ld, u.den[g][i0:][:n], over)
		clear(o)
		u.product(&b, 0, n, cols, s, ld, v, ldo, kernel.Pad(u.dv), o, ldo)
		out := &u.o[g]
		u.t.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, ldo, u.dv, over)
		u.ar.Reset(mark)
	}
}

// bandWeights sets the rows of s to weights over a power of 2 of each row's own,
// over to what they are to be multiplied with to sum to 1, and den to the
// logarithms of the sums. A row that sees nothing has zeros, and -Inf.
func (u *unit[T]) bandWeights(b *block[T], s []T, ld int, den, over []T) (cols int) {
	if b.nk == 0 {
		for r := range den {
			den[r], over[r] = T(math.Inf(-1)), 0
		}
		return 0
	}
	_, cols = u.scores(b, 0, b.nq, s, ld)
	mark := u.ar.Mark()
	base, top, sum := u.take(1), u.take(1), u.take(1)
	for r := range den {
		row := s[r*ld:][:cols]
		b.hide(row, r, T(math.Inf(-1)))
		band := row[b.lowest(r):b.visible(r)]
		base[0], top[0], sum[0] = 0, 0, 0
		if len(band) > 0 {
			base[0], top[0] = u.power(band, u.t.Max(band), math.Log2E, nil, 0)
			rowscale.Lower(band, base[0])
			u.t.ExpRows(band, ld, len(band), math.Log2E, top, sum)
		}
		b.hide(row, r, 0)
		if over[r] = 0; sum[0] != 0 {
			over[r] = 1 / sum[0]
		}
		den[r] = rowscale.Power[T]{Base: base[0], Top: top[0]}.Log(sum[0], math.Log2E)
	}
	u.ar.Reset(mark)
	return cols
}

func (u *unit[T]) bandBackward() {
	dkeys, dvalues := u.bandPairs()
	u.gradK(0, u.m, dkeys, scratch.Stride[T](u.da))
	u.setValuesGrad(dvalues, 0, u.m)
}

// bandPairs sets dq and returns the gradients of the prepared keys
// [m, stride(da)] and of the values [m, stride(dv)]. What the keys of a piece get
// is summed from zero and added in the order of the pieces.
func (u *unit[T]) bandPairs() (dkeys, dvalues []T) {
	lda, ldo := scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	dkeys, dvalues = arena.TakeZeros[T](u.ar, u.m*lda), arena.TakeZeros[T](u.ar, u.m*ldo)
	var age []T
	if u.dage != nil {
		age = arena.TakeZeros[T](u.ar, u.m)
	}
	u.eachBand(1, func(u *unit[T], t *team, piece, i0, n int) {
		mark := u.ar.Mark()
		lo := u.lowest(i0)
		nk := u.seen(i0+n-1) - lo
		x := u.bandGradient(i0, n, lo, nk)
		if t != nil {
			t.wait(0, piece)
		}
		add := func(to, part []T) { u.t.Add(to[:len(part)], to, part) }
		add(dkeys[lo*lda:], x.db)
		add(dvalues[lo*ldo:], x.dv)
		if age != nil {
			add(age[lo:], x.age[:nk])
		}
		if t != nil {
			t.pass(0)
		}
		u.ar.Reset(mark)
	})
	if age != nil {
		u.ageKeys(0, age)
	}
	return dkeys, dvalues
}

// bandGradient sets dq of n queries of every head from i0 on, and returns what
// they give keys lo ≤ j < lo+nk.
func (u *unit[T]) bandGradient(i0, n, lo, nk int) gradient[T] {
	ld, lda, ldo := scratch.Stride[T](nk), scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	x := gradient[T]{
		b: arena.TakeZeros[T](u.ar, nk*lda), vt: u.take(u.dv * ld),
		do: arena.TakeZeros[T](u.ar, n*ldo), ldo: ldo, w: u.take(n), top: u.take(n),
		da: u.take(n * lda), db: arena.TakeZeros[T](u.ar, nk*lda), dv: arena.TakeZeros[T](u.ar, nk*ldo),
	}
	if u.dage != nil {
		x.age = arena.TakeZeros[T](u.ar, kernel.Pad(nk))
	}
	mark := u.ar.Mark()
	bt, values := u.take(u.da*ld), u.take(nk*ldo)
	u.prepareK(x.b, lda, lo, lo+nk)
	u.t.Transpose(bt, ld, x.b, lda, nk, u.da)
	u.copyV(values, ldo, lo, lo+nk)
	u.t.Transpose(x.vt, ld, values, ldo, nk, u.dv)
	a := arena.TakeZeros[T](u.ar, n*lda)
	for g := range u.q {
		mark := u.ar.Mark()
		u.prepareQ(a, lda, g, i0, i0+n)
		u.outputGrad(g, i0, n, x.do, ldo, x.w, x.top)
		clear(x.da)
		if nk > 0 {
			b := u.bandBlock(a, lda, i0, n, bt, ld, lo, nk)
			x.base = nil
			if far := rowscale.FarRowsOf(u.ar, x.top); far != nil {
				u.meet(&b, far)
				far.Finish()
				x.base = far.Base
			}
			u.blockGrad(&b, &x)
		}
		u.gradQ(g, i0, i0+n, x.da, lda)
		u.ar.Reset(mark)
	}
	u.ar.Reset(mark)
	return x
}

// bandAges is what a unit with a decay tells of the two parts of each of its
// queries. Weights of the keys before the band are relative to the last of them
// that exists, those in it to the last that the query sees.
type bandAges struct {
	fade  []float64 // logarithm of what is left of the former at the latter
	waits []float64 // what waits after the last key seen
}

// bandAges returns those of the queries, none where there is no decay; behind is
// what waits before the first key.
func (u *unit[T]) bandAges(behind float64) (x bandAges) {
	if len(u.logG.Data) == 0 {
		return x
	}
	x.fade, x.waits = arena.TakeZeros[float64](u.ar, u.n), arena.TakeZeros[float64](u.ar, u.n)
	owes, next := behind, 0
	for i := range u.n {
		lo, end := u.lowest(i), u.seen(i)
		for ; next < lo; next++ {
			if owes = max(owes+u.rate(next), slowest); u.exists(next) {
				owes = 0
			}
		}
		sees := func(j int) bool { return u.exists(j) && (u.keep == nil || u.keep[i*u.keepRow+j]) }
		before := owes // what waits after the keys before the band
		if u.keep != nil {
			before = 0
			for j := lo - 1; j >= 0 && !sees(j); j-- {
				before += u.rate(j)
			}
		}
		last := end - 1
		for ; last >= lo && !sees(last); last-- {
			x.waits[i] += u.rate(last)
		}
		if last < lo {
			x.waits[i] += before
			continue
		}
		for j := last; j >= lo; j-- {
			x.fade[i] += u.rate(j)
		}
		x.fade[i] += before
	}
	return x
}
