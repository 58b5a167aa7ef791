package attention

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/band"
	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// A band is a causal exponential in which a query sees the last Spec.band keys
// alone, masked ones counted. Package band computes it in tiles, so that the work
// is linear in the tokens. Results for a query do not depend on how queries are
// grouped.

// lowest returns the first key that query i could see by position.
func (u bandForm[T]) lowest(i int) int {
	if u.spec.windowWidth == 0 {
		return 0
	}
	end := u.countVisible(i)
	if u.spec.isSymmetric {
		end = i + u.offset + 1
	}
	return min(max(end-u.spec.windowWidth, 0), u.m)
}

// eachBandTogether calls f for every piece of the queries, i0 ≤ i < i0+n, on the workers of
// the task.
func (u bandForm[T]) eachBandTogether(stages int, f func(u *headTask[T], t *tokenGroup, piece, i0, n int)) {
	u.runParallel(pieces(u.n, queryBlock), stages, func(u *headTask[T], t *tokenGroup) {
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			f(u, t, i, i*queryBlock, min(queryBlock, u.n-i*queryBlock))
		}
	})
}

// bandSums are the sums of weights of all queries of a call [B,H,N].
type bandSums[T tensor.Float] struct {
	rowscale.Sums[T]
	logless bool // the logarithms of denominators are not wanted

	// Backward only.
	shares []T  // [B,H,N] factors of the gradients of outputs; nil: 1
	adds   bool // gradients are added
}

// resize makes room for n sums, with undefined contents.
func (s *bandSums[T]) resize(n int) {
	s.Base, s.Top, s.Sum = scratch.Grow(s.Base[:0], n), scratch.Grow(s.Top[:0], n), scratch.Grow(s.Sum[:0], n)
}

func (u bandForm[T]) bandForward() {
	if u.workers > 1 {
		u.eachBandTogether(0, func(u *headTask[T], _ *tokenGroup, _, i0, n int) { u.band().bandAttend(i0, n) })
		return
	}
	for i0 := 0; i0 < u.n; i0 += queryBlock {
		u.bandAttend(i0, min(queryBlock, u.n-i0))
	}
}

// bandAttend sets the outputs of n queries of every head from i0 on, and the
// sums of their weights, the logarithms of their denominators or both.
func (u bandForm[T]) bandAttend(i0, n int) {
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	x, _, _ := u.bandRange(i0, n)
	for g := range u.q {
		var sums rowscale.Sums[T]
		if u.sums != nil {
			sums = u.sums[g].Slice(i0, i0+n)
		} else {
			sums = rowscale.TakeSums[T](u.ar, n)
		}
		u.rows().prepareQ(x.Queries, x.LDQ, g, i0, i0+n)
		out := &u.o[g]
		x.Attend(out.Data[i0*out.Stride:], out.Stride, sums)
		if u.sums != nil && !u.savesDen {
			continue
		}
		for r := range n {
			u.den[g][i0+r] = sums.Log(r, math.Log2E)
		}
	}
}

// bandRange returns n queries from i0 on, without their rows, and the nk keys from
// lo on that any of them sees.
func (u bandForm[T]) bandRange(i0, n int) (x band.Block[T], lo, nk int) {
	lo = u.lowest(i0)
	nk = max(u.countVisible(i0+n-1)-lo, 0)
	x = band.Block[T]{
		Table: u.t, Arena: u.ar, D: u.da, Dv: u.dv, Factor: math.Log2E,
		LDQ: scratch.Stride[T](u.da), LDK: scratch.Stride[T](nk), LDV: scratch.Stride[T](u.dv),
		Starts: arena.Take[int32](u.ar, n), Ends: arena.Take[int32](u.ar, n), SlowestRate: slowest,
	}
	for r := range n {
		seen := max(u.countVisible(i0+r)-lo, 0)
		x.Starts[r], x.Ends[r] = int32(min(u.lowest(i0+r)-lo, seen)), int32(seen)
	}
	if u.mask != nil && slices.Contains(u.mask[lo:][:nk], false) {
		x.Mask = u.mask[lo:][:nk]
	}
	if u.keep != nil {
		x.Keep, x.KeepStride = u.keep[i0*u.keepRow+lo:], u.keepRow
	}
	if len(u.logG.Data) > 0 {
		x.Rates = arena.Take[T](u.ar, nk)
		for j := range x.Rates {
			x.Rates[j] = T(u.decay().logDecay(lo + j))
		}
	}
	x.Queries, x.Keys = u.bandRows(n, u.da), u.linear().takeScratch(u.da*x.LDK)
	keys := u.rows().keySide()
	u.rows().prepare(x.Keys, x.LDK, &keys, lo, lo+nk)
	if u.mask == nil && u.dv%kernel.Lanes == 0 && u.v.Stride%kernel.Lanes == 0 && avoidsCacheConflicts(u.v.Stride) {
		x.Values, x.LDV = u.v.Data[min(lo*u.v.Stride, len(u.v.Data)):], u.v.Stride
	} else {
		x.Values = u.linear().takeScratch(nk * x.LDV)
		u.copyValues(x.Values, x.LDV, lo, lo+nk)
	}
	return x, lo, nk
}

func (u bandForm[T]) bandBackward() {
	dkeys, dvalues := u.bandPairs()
	u.rows().gradK(0, u.m, dkeys, scratch.Stride[T](u.da))
	u.direct().setValuesGrad(dvalues, 0, u.m)
}

// bandPairs sets dq and returns the gradients of the prepared keys
// [m, stride(da)] and of the values [m, stride(dv)]. What the keys of a piece get
// is summed from zero and added in the order of the pieces.
func (u bandForm[T]) bandPairs() (dkeys, dvalues []T) {
	lda, ldo := scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	dkeys, dvalues = arena.TakeZeros[T](u.ar, u.m*lda), arena.TakeZeros[T](u.ar, u.m*ldo)
	var age []T
	if u.dage != nil {
		age = arena.TakeZeros[T](u.ar, u.m)
	}
	if u.workers > 1 {
		u.bandPairsTogether(dkeys, dvalues, age)
	}
	for i0 := 0; i0 < u.n && u.workers <= 1; i0 += queryBlock {
		mark := u.ar.Mark()
		lo, nk, x := u.bandGradient(i0, min(queryBlock, u.n-i0))
		u.addBandGrad(&x, lo, nk, dkeys, dvalues, age)
		u.ar.Reset(mark)
	}
	if age != nil {
		u.decay().ageKeys(0, age)
	}
	return dkeys, dvalues
}

// bandPairsTogether does the pieces of bandPairs on the workers of the task.
func (u bandForm[T]) bandPairsTogether(dkeys, dvalues, age []T) {
	u.eachBandTogether(1, func(u *headTask[T], t *tokenGroup, piece, i0, n int) {
		mark := u.ar.Mark()
		lo, nk, x := u.band().bandGradient(i0, n)
		t.waitForTurn(0, piece)
		u.band().addBandGrad(&x, lo, nk, dkeys, dvalues, age)
		t.passStage(0)
		u.ar.Reset(mark)
	})
}

// addBandGrad adds the gradients of nk keys from lo on to the gradients of all.
func (u bandForm[T]) addBandGrad(x *band.Grad[T], lo, nk int, dkeys, dvalues, age []T) {
	add := func(to, part []T) { u.t.Add(to[:len(part)], to, part) }
	add(dkeys[lo*scratch.Stride[T](u.da):], x.DKeys)
	add(dvalues[lo*x.LDV:], x.DValues)
	if age != nil {
		add(age[lo:], x.DRates[:nk])
	}
}

// bandGradient sets dq of n queries of every head from i0 on, and returns what
// they give the nk keys from lo on.
func (u bandForm[T]) bandGradient(i0, n int) (lo, nk int, g band.Grad[T]) {
	b, lo, nk := u.bandRange(i0, n)
	ldo := scratch.Stride[T](u.dv)
	g = band.Grad[T]{
		DKeys: arena.TakeZeros[T](u.ar, nk*b.LDQ), DValues: arena.TakeZeros[T](u.ar, nk*ldo), LDV: ldo,
	}
	if u.dage != nil {
		g.DRates = arena.TakeZeros[T](u.ar, kernel.Pad(nk))
	}
	mark := u.ar.Mark()
	g.KeyRows, g.ValuesT = u.bandRows(nk, u.da), u.linear().takeScratch(u.dv*b.LDK)
	g.Delta, g.Top, g.DQueries = u.linear().takeScratch(n), u.linear().takeScratch(n), u.linear().takeScratch(n*b.LDQ)
	u.rows().prepareK(g.KeyRows, b.LDQ, lo, lo+nk)
	u.t.Transpose(g.ValuesT, b.LDK, b.Values, b.LDV, nk, u.dv)
	for h := range u.q {
		mark := u.ar.Mark()
		u.rows().prepareQ(b.Queries, b.LDQ, h, i0, i0+n)
		u.bandOutputGrad(&g, h, i0, n)
		g.Base = nil
		if far := rowscale.FarRowsOf(u.ar, g.Top); far != nil {
			b.AddFarRows(far)
			far.Finish()
			g.Base = far.Base
		}
		b.Backward(&g)
		u.rows().gradQ(h, i0, i0+n, g.DQueries, b.LDQ)
		u.ar.Reset(mark)
	}
	u.ar.Reset(mark)
	return lo, nk, g
}

// bandRows returns n rows of width elements, zero beyond them up to whole vectors.
func (u bandForm[T]) bandRows(n, width int) []T {
	if width%kernel.Lanes == 0 {
		return u.linear().takeScratch(n * scratch.Stride[T](width))
	}
	return arena.TakeZeros[T](u.ar, n*scratch.Stride[T](width))
}

// bandOutputGrad sets DOut, Delta and Top of queries of head h from i0 on.
func (u bandForm[T]) bandOutputGrad(g *band.Grad[T], h, i0, n int) {
	blind := false // some query sees no key
	for r, den := range u.den[h][i0:][:n] {
		if g.Top[r] = T(float64(den) * math.Log2E); math.IsInf(float64(den), -1) {
			g.Top[r], blind = 0, true
		}
	}
	do, o := &u.do[h], &u.o[h]
	if g.DOut, g.LDO = do.Data[i0*do.Stride:], do.Stride; len(u.shares) > 0 {
		shares := u.shares[h][i0:][:n]
		g.DOut, g.LDO = u.bandRows(n, u.dv), scratch.Stride[T](u.dv)
		u.t.ScaleRows(g.DOut, g.LDO, do.Data[i0*do.Stride:], do.Stride, u.dv, shares)
		for r, share := range shares {
			if share == 0 {
				clear(g.DOut[r*g.LDO:][:u.dv])
			}
		}
	} else if blind || u.dv%kernel.Lanes != 0 {
		g.DOut, g.LDO = u.bandRows(n, u.dv), scratch.Stride[T](u.dv)
		for r := range n {
			row := g.DOut[r*g.LDO:][:u.dv]
			if clear(row); !math.IsInf(float64(u.den[h][i0+r]), -1) {
				copy(row, do.Row(i0+r))
			}
		}
	}
	u.t.RowDots(g.Delta, g.DOut, g.LDO, o.Data[i0*o.Stride:], o.Stride, u.dv)
	u.t.Scale(g.Delta, -1, g.Delta)
}

// bandAges is what a task with a decay tells of the two parts of each of its
// queries. Weights of the keys before the band are relative to the last of them
// that exists, those in it to the last that the query sees.
type bandAges struct {
	fade  []float64 // logarithm of the decay of the former up to the latter
	waits []float64 // log_g after the last key that is seen
}

// bandAges returns the decays between the two parts of each query, none if there is no
// decay. behind is the pending log_g before the first key.
func (u bandForm[T]) bandAges(behind float64) (x bandAges) {
	if len(u.logG.Data) == 0 {
		return x
	}
	x.fade, x.waits = arena.TakeZeros[float64](u.ar, u.n), arena.TakeZeros[float64](u.ar, u.n)
	owes, next := behind, 0
	for i := range u.n {
		lo, end := u.lowest(i), u.countVisible(i)
		for ; next < lo; next++ {
			if owes = max(owes+u.decay().logDecay(next), slowest); u.hasKey(next) {
				owes = 0
			}
		}
		sees := func(j int) bool { return u.hasKey(j) && (u.keep == nil || u.keep[i*u.keepRow+j]) }
		before := owes // what waits after the keys before the band
		if u.keep != nil {
			before = 0
			for j := lo - 1; j >= 0 && !sees(j); j-- {
				before += u.decay().logDecay(j)
			}
		}
		last := end - 1
		for ; last >= lo && !sees(last); last-- {
			x.waits[i] += u.decay().logDecay(last)
		}
		if last < lo {
			x.waits[i] += before
			continue
		}
		for j := last; j >= lo; j-- {
			x.fade[i] += u.decay().logDecay(j)
		}
		x.fade[i] += before
	}
	return x
}

// bandLeft returns, in scratch memory, for each query how many keys come before its band, or with a
// decay what is left of them at the last one. Before is what comes before the first
// key.
func (u bandForm[T]) bandLeft(before priorKeys) []float64 {
	if u.spec.isSymmetric {
		return u.countFar()
	}
	left := arena.TakeZeros[float64](u.ar, u.n)
	next := 0
	for i := range left {
		lo := u.lowest(i)
		if u.keep == nil {
			for ; next < lo; next++ {
				if before.pendingLogDecay += u.decay().logDecay(next); u.hasKey(next) {
					before.add(before.pendingLogDecay, 1)
					before.pendingLogDecay = 0
				}
			}
			left[i] = before.count
			continue
		}
		var age float64
		for j := lo - 1; j >= 0; j-- {
			if u.hasKey(j) && u.keep[i*u.keepRow+j] {
				left[i] += math.Exp(age)
			}
			if left[i] > 0 {
				age += u.decay().logDecay(j)
			}
		}
	}
	return left
}

// countFar returns for each query of a band the number of keys outside of it.
func (u *headTask[T]) countFar() []float64 {
	far := make([]float64, u.n)
	exist := make([]int, u.m+1) // keys that exist before each
	for j := range u.m {
		exist[j+1] = exist[j]
		if u.hasKey(j) {
			exist[j+1]++
		}
	}
	for i := range far {
		lo, hi := u.band().lowest(i), u.countVisible(i)
		if u.keep == nil {
			far[i] = float64(exist[lo] + exist[u.m] - exist[hi])
			continue
		}
		for j := range u.m {
			if (j < lo || j >= hi) && u.hasKey(j) && u.keep[i*u.keepRow+j] {
				far[i]++
			}
		}
	}
	return far
}

// skip answers the first queries, no more than there are, as those that see no
// key, and leaves the others.
func (u *headTask[T]) skip(n int) {
	if n = min(n, u.n); n <= 0 {
		return
	}
	for g := range u.q {
		u.linear().clearUnseen(g, 0, n)
		u.q[g], u.o[g], u.den[g] = u.q[g].Slice(n, u.n), u.o[g].Slice(n, u.n), u.den[g][n:]
	}
	u.n, u.pos, u.place.q0 = u.n-n, n, u.place.q0+n
}

// priorKeys is what a state before a call tells of the keys of one key head.
type priorKeys struct {
	count           float64 // their number, with decay the sum of their factors up to the last one
	pendingLogDecay float64 // the decay that waits for the next
	longest         float64 // of the prepared keys that it has one by one
}

// add counts a key that exists and entered with a factor, gone being the decay
// since the one before.
func (x *priorKeys) add(gone, factor float64) { x.count = factor + x.count*math.Exp(gone) }
