package headtask

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// The attention matrix is computed in blocks of QueryBlock rows and KeyBlock columns and never
// stored as a whole. Blocks start at multiples of these sizes from the first token on, so that
// the order of a query's sums depends only on the keys that it sees. A block of keys and its
// values fit the second-level cache.
const (
	KeyBlock   = 256
	QueryBlock = 4 * PanelRows
	// The backward pass transposes a block of keys for each block of queries.
	GradQueries = 4 * gradRows
)

// Block describes nq queries from i0 on, prepared in a, and nk keys from j0 on, transposed in
// bt.
func (u *Task) Block(a []float, lda, i0, nq int, bt []float, ldb, j0, nk int) block {
	b := block{a: a, lda: lda, bt: bt, panel: KeyBlock, ldb: ldb, Nq: nq, nk: nk, diag: nk}
	if u.Causal {
		b.diag = i0 + u.Offset - j0
	}
	if u.Decays != nil {
		b.Decays, b.key, b.rowPlace, b.log = u.Decays, j0, u.M-1, 1
		if u.Causal {
			b.rowPlace = i0 + u.Offset
		}
		if u.places != nil {
			b.places = u.places[i0:]
		}
	}
	if u.Mask != nil && slices.Contains(u.Mask[j0:][:nk], false) {
		b.mask = u.Mask[j0:][:nk]
	}
	if u.Keep != nil {
		b.keep, b.keepRow = u.Keep[i0*u.KeepRow+j0:], u.KeepRow
	}
	b.band, b.twoEnds = u.Spec.WindowWidth, u.Spec.IsSymmetric
	return b
}

// SeesAnyKey reports whether query i sees any key.
func (u *Geometry) SeesAnyKey(i int) bool {
	for j := u.Lowest(i); j < u.CountVisible(i); j++ {
		if u.HasKey(j) && (u.Keep == nil || u.Keep[i*u.KeepRow+j]) {
			return true
		}
	}
	return false
}

func (u *Task) DirectForward() {
	u.TakeDecays()
	x := u.keyRows()
	if u.queriesInPlace() {
		if u.Workers > 1 {
			u.attendTogether(u, x, true)
			return
		}
		for i0 := 0; i0 < u.N; i0 += QueryBlock {
			u.Attend(x, nil, 0, i0, min(QueryBlock, u.N-i0))
		}
		return
	}
	u.AttendAs(u, x)
}

// AttendAs sets the outputs of the queries of u, which see the keys x of task all.
func (u *Task) AttendAs(all *Task, x *KeyRows) {
	if u.Workers > 1 {
		u.attendTogether(all, x, false)
		return
	}
	lda := scratch.Stride[float](min(u.N, QueryBlock))
	a := arena.Take[float](u.Arena, len(u.Q)*u.PreparedWidth*lda)
	for i0 := 0; i0 < u.N; i0 += QueryBlock {
		n := min(QueryBlock, u.N-i0)
		u.prepareGroup(a, lda, i0, n)
		all.Attend(x, a, lda, i0, n)
	}
}

// prepareGroup sets a [heads, da, lda] to n prepared queries from i0 on of every
// head, each a column, without what exponent leaves to the exponential.
func (u *Task) prepareGroup(a []float, lda, i0, n int) {
	for g := range u.Q {
		s := u.QuerySide(g)
		s.scale, _ = u.Spec.Exponent(s.scale)
		u.Prepare(a[g*u.PreparedWidth*lda:], lda, &s, i0, i0+n)
	}
}

// queriesInPlace reports whether the queries can be read where they are: they
// need no preparation, and the lines of a column of a few rows fit the
// first-level cache beside each other.
func (u *Geometry) queriesInPlace() bool {
	if u.Spec.Norm != attention.NoNorm || u.Spec.HasMap() || u.Rope != nil || u.Drop != nil {
		return false
	}
	for g := range u.Q {
		if rest, _ := u.Spec.Exponent(u.Scale[g]); rest != 1 || !avoidsCacheConflicts(u.Q[g].Stride) {
			return false
		}
	}
	return true
}

// sumsInPlace reports whether numerators can be summed where the outputs will
// be.
func (u *Task) sumsInPlace() bool {
	for g := range u.O {
		if s := u.O[g].Stride; s%kernel.Lanes != 0 || !avoidsCacheConflicts(s) {
			return false
		}
	}
	return u.Dv%kernel.Lanes == 0
}

// avoidsCacheConflicts reports whether a column of a dozen rows fits the first-level cache: the
// number of lines per row must not be a multiple of a large power of two.
func avoidsCacheConflicts(stride int) bool {
	const largest = 8
	lines := stride / kernel.Lanes
	return lines&-lines <= largest
}

// Attend sets the outputs and denominators of n ≤ QueryBlock queries of every head from i0 on.
// a holds the queries as prepareGroup prepares them; nil: they are used in place. Each block of
// keys is read once for all heads.
func (u *Task) Attend(x *KeyRows, a []float, lda, i0, n int) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	rows := len(u.Q) * n
	var o []float
	ldo := scratch.Stride[float](u.Dv)
	if !u.sumsInPlace() {
		o = arena.Take[float](u.Arena, rows*ldo)
	}
	// sums are the numerators of head g.
	sums := func(g int) ([]float, int) {
		if o == nil {
			return u.O[g].Data[i0*u.O[g].Stride:], u.O[g].Stride
		}
		return o[g*n*ldo:], ldo
	}
	den, base, top := arena.TakeZeros[float](u.Arena, rows), arena.TakeZeros[float](u.Arena, rows), arena.TakeZeros[float](u.Arena, rows)
	blocks := pieces(u.CountVisible(i0+n-1), KeyBlock)
	// With decay the keys that weigh most come last, and an exponential begins
	// with them: the powers of rows then need not follow.
	backward := u.Decays != nil && u.Spec.Exp
	for r := 0; r < rows && backward; r++ {
		o, ldo := sums(r / n)
		clear(o[r%n*ldo:][:kernel.Pad(u.Dv)])
	}
	for c := range blocks {
		j0 := c * KeyBlock
		if backward {
			j0 = (blocks - 1 - c) * KeyBlock
		}
		nk := min(KeyBlock, u.M-j0)
		v := x.V[j0*x.Ldv:]
		for g := range u.Q {
			b := u.Block(nil, 0, i0, n, x.PanelOf(j0, u.PreparedWidth), x.Ldb, j0, nk)
			b.first, b.panel = j0 == 0 && !backward, x.Panel
			if a == nil {
				b.a, b.lda = u.Q[g].Data[i0*u.Q[g].Stride:], u.Q[g].Stride
			} else {
				b.a, b.lda, b.hasColumns = a[g*u.PreparedWidth*lda:], lda, true
			}
			o, ldo := sums(g)
			if r := g * n; u.Spec.Exp {
				_, factor := u.Spec.Exponent(u.Scale[g])
				b.log = math.Log2E / float64(factor)
				u.softmaxBlock(&b, factor, v, x.Ldv, o, ldo, den[r:], base[r:], top[r:])
			} else {
				u.polyBlock(&b, v, x.Ldv, o, ldo, den[r:])
			}
		}
	}
	for g := range u.Q {
		o, ldo := sums(g)
		u.finishRows(g, i0, o, ldo, den[g*n:][:n], base[g*n:], top[g*n:])
	}
}

// finishRows sets the outputs and denominators of the queries of head g from i0 on, from
// the sums of attend.
func (u *Task) finishRows(g, i0 int, o []float, ldo int, den, base, top []float) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	kept, over := u.Den[g][i0:], arena.Take[float](u.Arena, len(den))
	for r, sum := range den {
		if !u.Spec.Exp {
			sum = u.Spec.denominator(sum, u.RelativeEps(u.Pending(i0+r)))
			kept[r] = sum
		}
		if over[r] = u.invertDen(sum); u.Spec.OutputNorm {
			over[r] *= u.outputFactor(float64(u.countSeen(i0 + r)))
		}
	}
	if u.Spec.Exp && u.SavesDen {
		_, factor := u.Spec.Exponent(u.Scale[g])
		for r, sum := range den {
			kept[r] = rowscale.Power{Base: base[r], Top: top[r]}.Log(sum, factor)
		}
	}
	out := &u.O[g]
	u.Table.ScaleRows(out.Data[i0*out.Stride:], out.Stride, o, ldo, u.Dv, over)
	for r := range den {
		if u.Mask == nil && u.Keep == nil && u.CountVisible(i0) > 0 {
			break
		}
		if u.SeesAnyKey(i0 + r) {
			continue
		}
		clear(out.Row(i0 + r))
		kept[r] = 0
		if u.Spec.Exp {
			kept[r] = float(math.Inf(-1))
		}
	}
	u.noteNonFinite(g, i0, i0+len(den))
}

func (u *Task) DirectBackward() {
	u.TakeDecays()
	if u.Workers > 1 {
		u.directBackwardTogether()
		return
	}
	lda, ldo := scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](u.Dv)
	keys := arena.TakeZeros[float](u.Arena, u.M*lda)
	u.PrepareK(keys, lda, 0, u.M)
	values := arena.Take[float](u.Arena, u.M*ldo)
	u.CopyValues(values, ldo, 0, u.M)
	dkeys, dvalues := u.BackPairs(u, keys, values)
	u.GradK(0, u.M, dkeys, lda)
	u.SetValuesGrad(dvalues, 0, u.M)
}

// SetValuesGrad sets dV of keys j0 ≤ j < j1 from rows of stride(dv).
func (u *Task) SetValuesGrad(dvalues []float, j0, j1 int) {
	ldo := scratch.Stride[float](u.Dv)
	for j := j0; j < j1; j++ {
		if u.Adds {
			if u.HasKey(j) {
				u.Table.Add(u.DVal.Row(j), u.DVal.Row(j), dvalues[j*ldo:])
			}
			continue
		}
		if u.HasKey(j) {
			copy(u.DVal.Row(j), dvalues[j*ldo:])
		} else {
			clear(u.DVal.Row(j))
		}
	}
}

// BackPairs sets dq of the queries of u, and returns the gradients of the prepared keys [all.m,
// stride(da)] and values [all.m, stride(dv)] of task all, which they see.
func (u *Task) BackPairs(all *Task, keys, values []float) (dkeys, dvalues []float) {
	dkeys = arena.TakeZeros[float](u.Arena, all.M*scratch.Stride[float](u.PreparedWidth))
	dvalues = arena.TakeZeros[float](u.Arena, all.M*scratch.Stride[float](u.Dv))
	mark := u.Arena.Mark()
	r := backRow{all: all, keys: keys, values: values, dkeys: dkeys, dvalues: dvalues}
	if all.DAge != nil {
		r.age = arena.TakeZeros[float](u.Arena, kernel.Pad(all.M))
	}
	if u.Workers > 1 {
		u.backPairsTogether(r)
	} else {
		r.start(u, all)
		for g := range u.Q {
			for i := range pieces(u.N, GradQueries) {
				r.run(nil, g, i)
			}
		}
	}
	if r.age != nil {
		all.AgeKeys(0, r.age[:all.M])
	}
	u.Arena.Reset(mark)
	return dkeys, dvalues
}

// backRow is what backPairs works in.
type backRow struct {
	u, all                       *Task
	lda, ldb, ldo                int
	keys, values, dkeys, dvalues []float

	a, da, do, w, top []float // gradQueries queries
	bt, vt            []float // a block of keys and values, transposed
	age               []float // [kernel.Pad(all.m)] what gradient.age has of all keys; nil: not wanted
}

// start gives r a task to work for, and its scratch memory.
func (r *backRow) start(u, all *Task) {
	n := min(u.N, GradQueries)
	r.u, r.all = u, all
	r.lda, r.ldb, r.ldo = scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](min(all.M, KeyBlock)), scratch.Stride[float](u.Dv)
	r.a = arena.TakeZeros[float](u.Arena, n*r.lda)
	r.da = u.TakeScratch(n * r.lda)
	r.do = arena.TakeZeros[float](u.Arena, n*r.ldo)
	r.w, r.top = u.TakeScratch(n), u.TakeScratch(n)
	r.bt, r.vt = u.TakeScratch(u.PreparedWidth*r.ldb), u.TakeScratch(u.Dv*r.ldb)
}

// run does row i of blocks of head g, as a member of t unless that is nil.
func (r *backRow) run(t *tokenGroup, g, i int) {
	u, all := r.u, r.all
	i0 := i * GradQueries
	n := min(GradQueries, u.N-i0)
	u.PrepareQ(r.a, r.lda, g, i0, i0+n)
	all.outputGrad(g, i0, n, r.do, r.ldo, r.w, r.top)
	if r.age != nil {
		all.ageQueries(i0, r.w[:n], all.Pending)
	}
	all.Spec.maskDenGrad(r.w[:n], all.Den[g][i0:])
	clear(r.da)
	base := r.findFar(i0, n)
	for c := range pieces(all.CountVisible(i0+n-1), KeyBlock) {
		j0 := c * KeyBlock
		nk := min(KeyBlock, all.M-j0)
		keys, values := r.keys[j0*r.lda:], r.values[j0*r.ldo:]
		u.Table.Transpose(r.bt, r.ldb, keys, r.lda, nk, u.PreparedWidth)
		u.Table.Transpose(r.vt, r.ldb, values, r.ldo, nk, u.Dv)
		b := all.Block(r.a, r.lda, i0, n, r.bt, r.ldb, j0, nk)
		if t != nil {
			t.waitForTurn(c, all.rowsBefore(j0, g, i))
		}
		x := gradient{
			b: keys, vt: r.vt, do: r.do, ldo: r.ldo, w: r.w, top: r.top, base: base,
			da: r.da, Db: r.dkeys[j0*r.lda:], Dv: r.dvalues[j0*r.ldo:],
		}
		if r.age != nil {
			x.Age = r.age[j0:]
		}
		u.blockGrad(&b, &x)
		if t != nil {
			t.passStage(c)
		}
	}
	u.GradQ(g, i0, i0+n, r.da, r.lda)
}

// findFar returns what scores of n queries from i0 on are relative to, nil: 0, and
// sets what is left of the powers of those that are far.
func (r *backRow) findFar(i0, n int) (base []float) {
	u, all := r.u, r.all
	if !all.Spec.Exp {
		return nil
	}
	far := rowscale.FarRowsOf(u.Arena, r.top[:n])
	if far == nil {
		return nil
	}
	for c := range pieces(all.CountVisible(i0+n-1), KeyBlock) {
		j0 := c * KeyBlock
		nk := min(KeyBlock, all.M-j0)
		u.Table.Transpose(r.bt, r.ldb, r.keys[j0*r.lda:], r.lda, nk, u.PreparedWidth)
		b := all.Block(r.a, r.lda, i0, n, r.bt, r.ldb, j0, nk)
		u.measureFarRows(&b, far)
	}
	far.Finish()
	return far.Base
}

// outputGrad sets do [n, ldo], w and top as gradient has them, for queries of
// head g from i0 on. Queries that see no key have zeros.
func (u *Task) outputGrad(g, i0, n int, do []float, ldo int, w, top []float) {
	for r := range n {
		i, row := i0+r, do[r*ldo:][:u.Dv]
		if !u.SeesAnyKey(i) {
			clear(row)
			w[r], top[r] = 0, 0
			continue
		}
		delta, factor := u.Table.Dot(u.DO[g].Row(i), u.O[g].Row(i)), float(1)
		if u.Spec.Exp {
			top[r] = float(float64(u.Den[g][i]) * math.Log2E)
		} else {
			factor = u.invertDen(u.Den[g][i])
		}
		u.Table.Scale(row, factor, u.DO[g].Row(i))
		w[r] = -delta * factor
	}
}

// DirectWeights sets rows of dst [i1-i0, m] to the weights of queries i0 ≤ i < i1 of head g,
// divided by their denominators. Weights of keys that a query does not see are 0.
func (u *Task) DirectWeights(dst tensor.Mat, g, i0, i1 int) {
	u.TakeDecays()
	x := u.keyRows()
	lda := scratch.Stride[float](u.PreparedWidth)
	nq := min(i1-i0, PanelRows)
	a := arena.Take[float](u.Arena, nq*lda)
	s := arena.Take[float](u.Arena, nq*x.Ldb)
	for i := i0; i < i1; i += PanelRows {
		n := min(PanelRows, i1-i)
		u.PrepareQ(a, lda, g, i, i+n)
		for j0 := 0; j0 < u.CountVisible(i+n-1); j0 += KeyBlock {
			b := u.Block(a, lda, i, n, x.PanelOf(j0, u.PreparedWidth), x.Ldb, j0, min(KeyBlock, u.M-j0))
			_, cols := u.ComputeScores(&b, 0, PanelRows, s, x.Ldb)
			if u.Spec.Exp {
				mark := u.Arena.Mark()
				decay := u.Fader(&b)
				u.AgeScores(&decay, &b, 0, n, s, x.Ldb, nil)
				u.Arena.Reset(mark)
			}
			for r := range n {
				copy(dst.Row(i - i0 + r)[j0:][:cols], s[r*x.Ldb:])
			}
		}
		for r := range n {
			u.normaliseWeights(dst.Row(i-i0+r), i+r)
		}
	}
}

// normaliseWeights turns the scores of query i into weights.
func (u *Task) normaliseWeights(row []float, i int) {
	if !u.SeesAnyKey(i) {
		clear(row)
		return
	}
	all := u.Block(nil, 0, i, 1, nil, 0, 0, u.M)
	seen := row[:u.CountVisible(i)]
	if u.Spec.Exp {
		all.maskRow(row, 0, float(math.Inf(-1)))
		u.Table.Exp(seen, seen, u.Table.Max(seen))
	} else {
		mark := u.Arena.Mark()
		u.Weigh(seen, seen, 0, len(seen), u.Coefficients(), arena.TakeZeros[float](u.Arena, 1))
		if all.Decays != nil {
			decay := u.Fader(&all)
			weights := u.TakeScratch(len(seen))
			copy(weights, seen)
			decay.fade(&all, 0, seen, weights)
		}
		u.Arena.Reset(mark)
	}
	all.maskRow(row, 0, 0)
	u.Table.Scale(seen, u.invertDen(u.Spec.denominator(u.Table.Sum(seen), u.RelativeEps(u.Pending(i)))), seen)
}
