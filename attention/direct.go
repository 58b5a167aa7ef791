package attention

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// The attention matrix is computed in blocks of queryBlock rows and keyBlock
// columns and never kept. Borders lie at multiples of these from the first
// token on, so what a query sees alone decides the order of its sums. Blocks
// of both keys and values fit the second-level cache.
const (
	keyBlock   = 256
	queryBlock = 4 * panelRows
	// The backward pass transposes a block of keys for each block of queries.
	gradQueries = 4 * gradRows
)

// block returns nq queries from i0 on, prepared in a, against nk keys from j0
// on.
func (u directForm[T]) block(a []T, lda, i0, nq int, bt []T, ldb, j0, nk int) block[T] {
	b := block[T]{a: a, lda: lda, bt: bt, panel: keyBlock, ldb: ldb, nq: nq, nk: nk, diag: nk}
	if u.causal {
		b.diag = i0 + u.offset - j0
	}
	if u.ages != nil {
		b.ages, b.key, b.rowPlace, b.log = u.ages, j0, u.m-1, 1
		if u.causal {
			b.rowPlace = i0 + u.offset
		}
		if u.places != nil {
			b.places = u.places[i0:]
		}
	}
	if u.mask != nil && slices.Contains(u.mask[j0:][:nk], false) {
		b.mask = u.mask[j0:][:nk]
	}
	if u.keep != nil {
		b.keep, b.keepRow = u.keep[i0*u.keepRow+j0:], u.keepRow
	}
	b.band, b.twoEnds = u.spec.windowWidth, u.spec.isSymmetric
	return b
}

// seesAnyKey reports whether query i sees any key.
func (u directForm[T]) seesAnyKey(i int) bool {
	for j := u.band().lowest(i); j < u.countVisible(i); j++ {
		if u.hasKey(j) && (u.keep == nil || u.keep[i*u.keepRow+j]) {
			return true
		}
	}
	return false
}

func (u directForm[T]) directForward() {
	u.decay().age()
	x := u.keyRows()
	if u.queriesInPlace() {
		if u.workers > 1 {
			u.attendTogether(u.headTask, x, true)
			return
		}
		for i0 := 0; i0 < u.n; i0 += queryBlock {
			u.attend(x, nil, 0, i0, min(queryBlock, u.n-i0))
		}
		return
	}
	u.attendAs(u.headTask, x)
}

// attendAs answers the queries of u, which see keys as all does.
func (u directForm[T]) attendAs(all *headTask[T], x *keyRows[T]) {
	if u.workers > 1 {
		u.attendTogether(all, x, false)
		return
	}
	lda := scratch.Stride[T](min(u.n, queryBlock))
	a := arena.Take[T](u.ar, len(u.q)*u.da*lda)
	for i0 := 0; i0 < u.n; i0 += queryBlock {
		n := min(queryBlock, u.n-i0)
		u.prepareGroup(a, lda, i0, n)
		all.direct().attend(x, a, lda, i0, n)
	}
}

// prepareGroup sets a [heads, da, lda] to n prepared queries from i0 on of every
// head, each a column, without what exponent leaves to the exponential.
func (u directForm[T]) prepareGroup(a []T, lda, i0, n int) {
	for g := range u.q {
		s := u.rows().querySide(g)
		s.scale, _ = u.spec.exponent(s.scale)
		u.rows().prepare(a[g*u.da*lda:], lda, &s, i0, i0+n)
	}
}

// queriesInPlace reports whether the queries can be read where they are: they
// need no preparation, and the lines of a column of a few rows fit the
// first-level cache beside each other.
func (u directForm[T]) queriesInPlace() bool {
	if u.spec.Norm != NoNorm || u.spec.hasMap() || u.rope != nil || u.drop != nil {
		return false
	}
	for g := range u.q {
		if rest, _ := u.spec.exponent(u.scale[g]); rest != 1 || !avoidsCacheConflicts(u.q[g].Stride) {
			return false
		}
	}
	return true
}

// sumsInPlace reports whether numerators can be summed where the outputs will
// be.
func (u directForm[T]) sumsInPlace() bool {
	for g := range u.o {
		if s := u.o[g].Stride; s%kernel.Lanes != 0 || !avoidsCacheConflicts(s) {
			return false
		}
	}
	return u.dv%kernel.Lanes == 0
}

// avoidsCacheConflicts reports whether a column of a dozen rows finds room in the first-level
// cache: the lines of a row are no multiple of too large a power of two.
func avoidsCacheConflicts(stride int) bool {
	const largest = 8
	lines := stride / kernel.Lanes
	return lines&-lines <= largest
}

// attend sets the outputs and denominators of n ≤ queryBlock queries of every
// head from i0 on, which prepareGroup has left in a; nil: they are in place. A
// block of keys is read once for all heads.
func (u directForm[T]) attend(x *keyRows[T], a []T, lda, i0, n int) {
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	rows := len(u.q) * n
	var o []T
	ldo := scratch.Stride[T](u.dv)
	if !u.sumsInPlace() {
		o = arena.Take[T](u.ar, rows*ldo)
	}
	// sums are the numerators of head g.
	sums := func(g int) ([]T, int) {
		if o == nil {
			return u.o[g].Data[i0*u.o[g].Stride:], u.o[g].Stride
		}
		return o[g*n*ldo:], ldo
	}
	den, base, top := arena.TakeZeros[T](u.ar, rows), arena.TakeZeros[T](u.ar, rows), arena.TakeZeros[T](u.ar, rows)
	blocks := pieces(u.countVisible(i0+n-1), keyBlock)
	// With decay the keys that weigh most come last, and an exponential begins
	// with them: the powers of rows then need not follow.
	backward := u.ages != nil && u.spec.Exp
	for r := 0; r < rows && backward; r++ {
		o, ldo := sums(r / n)
		clear(o[r%n*ldo:][:kernel.Pad(u.dv)])
	}
	for c := range blocks {
		j0 := c * keyBlock
		if backward {
			j0 = (blocks - 1 - c) * keyBlock
		}
		nk := min(keyBlock, u.m-j0)
		v := x.v[j0*x.ldv:]
		for g := range u.q {
			b := u.block(nil, 0, i0, n, x.panelOf(j0, u.da), x.ldb, j0, nk)
			b.first, b.panel = j0 == 0 && !backward, x.panel
			if a == nil {
				b.a, b.lda = u.q[g].Data[i0*u.q[g].Stride:], u.q[g].Stride
			} else {
				b.a, b.lda, b.hasColumns = a[g*u.da*lda:], lda, true
			}
			o, ldo := sums(g)
			if r := g * n; u.spec.Exp {
				_, factor := u.spec.exponent(u.scale[g])
				b.log = math.Log2E / float64(factor)
				u.softmaxBlock(&b, factor, v, x.ldv, o, ldo, den[r:], base[r:], top[r:])
			} else {
				u.polyBlock(&b, v, x.ldv, o, ldo, den[r:])
			}
		}
	}
	for g := range u.q {
		o, ldo := sums(g)
		u.finishRows(g, i0, o, ldo, den[g*n:][:n], base[g*n:], top[g*n:])
	}
}

// finishRows sets the outputs and denominators of the queries of head g from i0 on, from
// the sums of attend.
func (u directForm[T]) finishRows(g, i0 int, o []T, ldo int, den, base, top []T) {
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	kept, over := u.den[g][i0:], arena.Take[T](u.ar, len(den))
	for r, sum := range den {
		if !u.spec.Exp {
			sum = u.spec.denominator(sum, u.decay().eps(u.decay().waits(i0+r)))
			kept[r] = sum
		}
		if over[r] = u.invertDen(sum); u.spec.OutputNorm {
			over[r] *= u.outputFactor(float64(u.countSeen(i0 + r)))
		}
	}
	if u.spec.Exp && u.savesDen {
		_, factor := u.spec.exponent(u.scale[g])
		for r, sum := range den {
			kept[r] = rowscale.Power[T]{Base: base[r], Top: top[r]}.Log(sum, factor)
		}
	}
	out := &u.o[g]
	u.t.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, ldo, u.dv, over)
	for r := range den {
		if u.mask == nil && u.keep == nil && u.countVisible(i0) > 0 {
			break
		}
		if u.seesAnyKey(i0 + r) {
			continue
		}
		clear(out.Row(i0 + r))
		kept[r] = 0
		if u.spec.Exp {
			kept[r] = T(math.Inf(-1))
		}
	}
	u.noteNonFinite(g, i0, i0+len(den))
}

func (u directForm[T]) directBackward() {
	u.decay().age()
	if u.workers > 1 {
		u.directBackwardTogether()
		return
	}
	lda, ldo := scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	keys := arena.TakeZeros[T](u.ar, u.m*lda)
	u.rows().prepareK(keys, lda, 0, u.m)
	values := arena.Take[T](u.ar, u.m*ldo)
	u.copyValues(values, ldo, 0, u.m)
	dkeys, dvalues := u.backPairs(u.headTask, keys, values)
	u.rows().gradK(0, u.m, dkeys, lda)
	u.setValuesGrad(dvalues, 0, u.m)
}

// setValuesGrad sets dV of keys j0 ≤ j < j1 from rows of stride(dv).
func (u directForm[T]) setValuesGrad(dvalues []T, j0, j1 int) {
	ldo := scratch.Stride[T](u.dv)
	for j := j0; j < j1; j++ {
		if u.adds {
			if u.hasKey(j) {
				u.t.Add(u.dval.Row(j), u.dval.Row(j), dvalues[j*ldo:])
			}
			continue
		}
		if u.hasKey(j) {
			copy(u.dval.Row(j), dvalues[j*ldo:])
		} else {
			clear(u.dval.Row(j))
		}
	}
}

// backPairs sets dq of the task's queries and returns the gradients of the
// prepared keys [all.m, stride(da)] and the values [all.m, stride(dv)] that they
// see, as all says.
func (u directForm[T]) backPairs(all *headTask[T], keys, values []T) (dkeys, dvalues []T) {
	dkeys = arena.TakeZeros[T](u.ar, all.m*scratch.Stride[T](u.da))
	dvalues = arena.TakeZeros[T](u.ar, all.m*scratch.Stride[T](u.dv))
	mark := u.ar.Mark()
	r := backRow[T]{all: all, keys: keys, values: values, dkeys: dkeys, dvalues: dvalues}
	if all.dage != nil {
		r.age = arena.TakeZeros[T](u.ar, kernel.Pad(all.m))
	}
	if u.workers > 1 {
		u.backPairsTogether(r)
	} else {
		r.start(u.headTask, all)
		for g := range u.q {
			for i := range pieces(u.n, gradQueries) {
				r.run(nil, g, i)
			}
		}
	}
	if r.age != nil {
		all.decay().ageKeys(0, r.age[:all.m])
	}
	u.ar.Reset(mark)
	return dkeys, dvalues
}

// backRow is what backPairs works in.
type backRow[T tensor.Float] struct {
	u, all                       *headTask[T]
	lda, ldb, ldo                int
	keys, values, dkeys, dvalues []T

	a, da, do, w, top []T // gradQueries queries
	bt, vt            []T // a block of keys and values, transposed
	age               []T // [kernel.Pad(all.m)] what gradient.age has of all keys; nil: not wanted
}

// start gives r a task to work for, and its scratch memory.
func (r *backRow[T]) start(u, all *headTask[T]) {
	n := min(u.n, gradQueries)
	r.u, r.all = u, all
	r.lda, r.ldb, r.ldo = scratch.Stride[T](u.da), scratch.Stride[T](min(all.m, keyBlock)), scratch.Stride[T](u.dv)
	r.a = arena.TakeZeros[T](u.ar, n*r.lda)
	r.da = u.linear().takeScratch(n * r.lda)
	r.do = arena.TakeZeros[T](u.ar, n*r.ldo)
	r.w, r.top = u.linear().takeScratch(n), u.linear().takeScratch(n)
	r.bt, r.vt = u.linear().takeScratch(u.da*r.ldb), u.linear().takeScratch(u.dv*r.ldb)
}

// run does row i of blocks of head g, as a member of t unless that is nil.
func (r *backRow[T]) run(t *tokenGroup, g, i int) {
	u, all := r.u, r.all
	i0 := i * gradQueries
	n := min(gradQueries, u.n-i0)
	u.rows().prepareQ(r.a, r.lda, g, i0, i0+n)
	all.direct().outputGrad(g, i0, n, r.do, r.ldo, r.w, r.top)
	if r.age != nil {
		all.decay().ageQueries(i0, r.w[:n], all.decay().waits)
	}
	all.spec.maskDenGrad(r.w[:n], all.den[g][i0:])
	clear(r.da)
	base := r.findFar(i0, n)
	for c := range pieces(all.countVisible(i0+n-1), keyBlock) {
		j0 := c * keyBlock
		nk := min(keyBlock, all.m-j0)
		keys, values := r.keys[j0*r.lda:], r.values[j0*r.ldo:]
		u.t.Transpose(r.bt, r.ldb, keys, r.lda, nk, u.da)
		u.t.Transpose(r.vt, r.ldb, values, r.ldo, nk, u.dv)
		b := all.direct().block(r.a, r.lda, i0, n, r.bt, r.ldb, j0, nk)
		if t != nil {
			t.waitForTurn(c, all.direct().rowsBefore(j0, g, i))
		}
		x := gradient[T]{
			b: keys, vt: r.vt, do: r.do, ldo: r.ldo, w: r.w, top: r.top, base: base,
			da: r.da, db: r.dkeys[j0*r.lda:], dv: r.dvalues[j0*r.ldo:],
		}
		if r.age != nil {
			x.age = r.age[j0:]
		}
		u.direct().blockGrad(&b, &x)
		if t != nil {
			t.passStage(c)
		}
	}
	u.rows().gradQ(g, i0, i0+n, r.da, r.lda)
}

// findFar returns what scores of n queries from i0 on are relative to, nil: 0, and
// sets what is left of the powers of those that are far.
func (r *backRow[T]) findFar(i0, n int) (base []T) {
	u, all := r.u, r.all
	if !all.spec.Exp {
		return nil
	}
	far := rowscale.FarRowsOf(u.ar, r.top[:n])
	if far == nil {
		return nil
	}
	for c := range pieces(all.countVisible(i0+n-1), keyBlock) {
		j0 := c * keyBlock
		nk := min(keyBlock, all.m-j0)
		u.t.Transpose(r.bt, r.ldb, r.keys[j0*r.lda:], r.lda, nk, u.da)
		b := all.direct().block(r.a, r.lda, i0, n, r.bt, r.ldb, j0, nk)
		u.direct().measureFarRows(&b, far)
	}
	far.Finish()
	return far.Base
}

// outputGrad sets do [n, ldo], w and top as gradient has them, for queries of
// head g from i0 on. Queries that see no key have zeros.
func (u directForm[T]) outputGrad(g, i0, n int, do []T, ldo int, w, top []T) {
	for r := range n {
		i, row := i0+r, do[r*ldo:][:u.dv]
		if !u.seesAnyKey(i) {
			clear(row)
			w[r], top[r] = 0, 0
			continue
		}
		delta, factor := u.t.Dot(u.do[g].Row(i), u.o[g].Row(i)), T(1)
		if u.spec.Exp {
			top[r] = T(float64(u.den[g][i]) * math.Log2E)
		} else {
			factor = u.invertDen(u.den[g][i])
		}
		u.t.Scale(row, factor, u.do[g].Row(i))
		w[r] = -delta * factor
	}
}

// directWeights sets rows of dst [i1-i0, m] to the weights of queries
// i0 ≤ i < i1 of head g over their denominators, 0 where they do not see.
func (u directForm[T]) directWeights(dst tensor.Mat[T], g, i0, i1 int) {
	u.decay().age()
	x := u.keyRows()
	lda := scratch.Stride[T](u.da)
	nq := min(i1-i0, panelRows)
	a := arena.Take[T](u.ar, nq*lda)
	s := arena.Take[T](u.ar, nq*x.ldb)
	for i := i0; i < i1; i += panelRows {
		n := min(panelRows, i1-i)
		u.rows().prepareQ(a, lda, g, i, i+n)
		for j0 := 0; j0 < u.countVisible(i+n-1); j0 += keyBlock {
			b := u.block(a, lda, i, n, x.panelOf(j0, u.da), x.ldb, j0, min(keyBlock, u.m-j0))
			_, cols := u.computeScores(&b, 0, panelRows, s, x.ldb)
			if u.spec.Exp {
				mark := u.ar.Mark()
				decay := u.decay().fader(&b)
				u.decay().ageScores(&decay, &b, 0, n, s, x.ldb, nil)
				u.ar.Reset(mark)
			}
			for r := range n {
				copy(dst.Row(i - i0 + r)[j0:][:cols], s[r*x.ldb:])
			}
		}
		for r := range n {
			u.normaliseWeights(dst.Row(i-i0+r), i+r)
		}
	}
}

// normaliseWeights turns the scores of query i into weights.
func (u directForm[T]) normaliseWeights(row []T, i int) {
	if !u.seesAnyKey(i) {
		clear(row)
		return
	}
	all := u.block(nil, 0, i, 1, nil, 0, 0, u.m)
	seen := row[:u.countVisible(i)]
	if u.spec.Exp {
		all.maskRow(row, 0, T(math.Inf(-1)))
		u.t.Exp(seen, seen, u.t.Max(seen))
	} else {
		mark := u.ar.Mark()
		u.weigh(seen, seen, 0, len(seen), u.coefficients(), arena.TakeZeros[T](u.ar, 1))
		if all.ages != nil {
			decay := u.decay().fader(&all)
			weights := u.linear().takeScratch(len(seen))
			copy(weights, seen)
			decay.fade(&all, 0, seen, weights)
		}
		u.ar.Reset(mark)
	}
	all.maskRow(row, 0, 0)
	u.t.Scale(seen, u.invertDen(u.spec.denominator(u.t.Sum(seen), u.decay().eps(u.decay().waits(i)))), seen)
}
