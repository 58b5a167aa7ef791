package headtask

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/band"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// A band is a causal exponential in which a query sees only the last Spec.WindowWidth keys,
// masked ones included. Package band computes it in tiles, so that the work is linear in the
// tokens. Results for a query do not depend on how queries are grouped.

// Lowest returns the first key that query i sees by position, before masks.
func (u *Geometry) Lowest(i int) int {
	if u.Spec.WindowWidth == 0 {
		return 0
	}
	end := u.CountVisible(i)
	if u.Spec.IsSymmetric {
		end = i + u.Offset + 1
	}
	return min(max(end-u.Spec.WindowWidth, 0), u.M)
}

// eachBandTogether calls f for every piece of the queries, i0 ≤ i < i0+n, on the workers of
// the task.
func (u *Task) eachBandTogether(stages int, f func(u *Task, t *tokenGroup, piece, i0, n int)) {
	u.runParallel(pieces(u.N, QueryBlock), stages, func(u *Task, t *tokenGroup) {
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			f(u, t, i, i*QueryBlock, min(QueryBlock, u.N-i*QueryBlock))
		}
	})
}

// BandSums holds the sums of weights of all queries of a call [B,H,N].
type BandSums struct {
	rowscale.Sums
	Logless bool // the logarithms of denominators are not needed

	// Shares and Adds are for Backward only.
	Shares []float // [B,H,N] factors of the gradients of outputs; nil: 1
	Adds   bool    // gradients are added to, not overwritten
}

// Resize makes room for n sums, with undefined contents.
func (s *BandSums) Resize(n int) {
	s.Base, s.Top, s.Sum = scratch.Grow(s.Base[:0], n), scratch.Grow(s.Top[:0], n), scratch.Grow(s.Sum[:0], n)
}

func (u *Task) BandForward() {
	if u.Workers > 1 {
		u.eachBandTogether(0, func(u *Task, _ *tokenGroup, _, i0, n int) { u.bandAttend(i0, n) })
		return
	}
	for i0 := 0; i0 < u.N; i0 += QueryBlock {
		u.bandAttend(i0, min(QueryBlock, u.N-i0))
	}
}

// bandAttend sets the outputs of n queries of every head from i0 on, and the
// sums of their weights, the logarithms of their denominators or both.
func (u *Task) bandAttend(i0, n int) {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	x, _, _ := u.BandRange(i0, n)
	for g := range u.Q {
		var sums rowscale.Sums
		if u.Sums != nil {
			sums = u.Sums[g].Slice(i0, i0+n)
		} else {
			sums = rowscale.TakeSums(u.Arena, n)
		}
		u.PrepareQ(x.Queries, x.LDQ, g, i0, i0+n)
		out := &u.O[g]
		x.Attend(out.Data[i0*out.Stride:], out.Stride, sums)
		if u.Sums != nil && !u.SavesDen {
			continue
		}
		for r := range n {
			u.Den[g][i0+r] = sums.Log(r, math.Log2E)
		}
	}
}

// BandRange describes n queries from i0 on and the nk keys from lo on that any of them sees.
// The rows of x are left for the caller to set.
func (u *Task) BandRange(i0, n int) (x band.Block, lo, nk int) {
	lo = u.Lowest(i0)
	nk = max(u.CountVisible(i0+n-1)-lo, 0)
	x = band.Block{
		Table: u.Table, Arena: u.Arena, D: u.PreparedWidth, Dv: u.Dv, Factor: math.Log2E,
		LDQ: scratch.Stride[float](u.PreparedWidth), LDK: scratch.Stride[float](nk), LDV: scratch.Stride[float](u.Dv),
		Starts: arena.Take[int32](u.Arena, n), Ends: arena.Take[int32](u.Arena, n), SlowestRate: Slowest,
	}
	for r := range n {
		seen := max(u.CountVisible(i0+r)-lo, 0)
		x.Starts[r], x.Ends[r] = int32(min(u.Lowest(i0+r)-lo, seen)), int32(seen)
	}
	if u.Mask != nil && slices.Contains(u.Mask[lo:][:nk], false) {
		x.Mask = u.Mask[lo:][:nk]
	}
	if u.Keep != nil {
		x.Keep, x.KeepStride = u.Keep[i0*u.KeepRow+lo:], u.KeepRow
	}
	if len(u.LogG.Data) > 0 {
		x.Rates = arena.Take[float](u.Arena, nk)
		for j := range x.Rates {
			x.Rates[j] = float(u.LogDecay(lo + j))
		}
	}
	x.Queries, x.Keys = u.bandRows(n, u.PreparedWidth), u.TakeScratch(u.PreparedWidth*x.LDK)
	keys := u.KeySide()
	u.Prepare(x.Keys, x.LDK, &keys, lo, lo+nk)
	if u.Mask == nil && u.Dv%kernel.Lanes == 0 && u.V.Stride%kernel.Lanes == 0 && avoidsCacheConflicts(u.V.Stride) {
		x.Values, x.LDV = u.V.Data[min(lo*u.V.Stride, len(u.V.Data)):], u.V.Stride
	} else {
		x.Values = u.TakeScratch(nk * x.LDV)
		u.CopyValues(x.Values, x.LDV, lo, lo+nk)
	}
	return x, lo, nk
}

func (u *Task) BandBackward() {
	dkeys, dvalues := u.BandPairs()
	u.GradK(0, u.M, dkeys, scratch.Stride[float](u.PreparedWidth))
	u.SetValuesGrad(dvalues, 0, u.M)
}

// BandPairs sets dq and returns the gradients of the prepared keys [m, stride(da)] and of the
// values [m, stride(dv)]. The gradients from each piece of queries are summed from zero and
// then added in the order of the pieces.
func (u *Task) BandPairs() (dkeys, dvalues []float) {
	lda, ldo := scratch.Stride[float](u.PreparedWidth), scratch.Stride[float](u.Dv)
	dkeys, dvalues = arena.TakeZeros[float](u.Arena, u.M*lda), arena.TakeZeros[float](u.Arena, u.M*ldo)
	var age []float
	if u.DAge != nil {
		age = arena.TakeZeros[float](u.Arena, u.M)
	}
	if u.Workers > 1 {
		u.bandPairsTogether(dkeys, dvalues, age)
	}
	for i0 := 0; i0 < u.N && u.Workers <= 1; i0 += QueryBlock {
		mark := u.Arena.Mark()
		lo, nk, x := u.bandGradient(i0, min(QueryBlock, u.N-i0))
		u.addBandGrad(&x, lo, nk, dkeys, dvalues, age)
		u.Arena.Reset(mark)
	}
	if age != nil {
		u.AgeKeys(0, age)
	}
	return dkeys, dvalues
}

// bandPairsTogether does the pieces of bandPairs on the workers of the task.
func (u *Task) bandPairsTogether(dkeys, dvalues, age []float) {
	u.eachBandTogether(1, func(u *Task, t *tokenGroup, piece, i0, n int) {
		mark := u.Arena.Mark()
		lo, nk, x := u.bandGradient(i0, n)
		t.waitForTurn(0, piece)
		u.addBandGrad(&x, lo, nk, dkeys, dvalues, age)
		t.passStage(0)
		u.Arena.Reset(mark)
	})
}

// addBandGrad adds the gradients of nk keys from lo on to the gradients of all.
func (u *Geometry) addBandGrad(x *band.Grad, lo, nk int, dkeys, dvalues, age []float) {
	add := func(to, part []float) { u.Table.Add(to[:len(part)], to, part) }
	add(dkeys[lo*scratch.Stride[float](u.PreparedWidth):], x.DKeys)
	add(dvalues[lo*x.LDV:], x.DValues)
	if age != nil {
		add(age[lo:], x.DRates[:nk])
	}
}

// bandGradient sets dq of n queries of every head from i0 on, and returns what
// they give the nk keys from lo on.
func (u *Task) bandGradient(i0, n int) (lo, nk int, g band.Grad) {
	b, lo, nk := u.BandRange(i0, n)
	ldo := scratch.Stride[float](u.Dv)
	g = band.Grad{
		DKeys: arena.TakeZeros[float](u.Arena, nk*b.LDQ), DValues: arena.TakeZeros[float](u.Arena, nk*ldo), LDV: ldo,
	}
	if u.DAge != nil {
		g.DRates = arena.TakeZeros[float](u.Arena, kernel.Pad(nk))
	}
	mark := u.Arena.Mark()
	g.KeyRows, g.ValuesT = u.bandRows(nk, u.PreparedWidth), u.TakeScratch(u.Dv*b.LDK)
	g.Delta, g.Top, g.DQueries = u.TakeScratch(n), u.TakeScratch(n), u.TakeScratch(n*b.LDQ)
	u.PrepareK(g.KeyRows, b.LDQ, lo, lo+nk)
	u.Table.Transpose(g.ValuesT, b.LDK, b.Values, b.LDV, nk, u.Dv)
	for h := range u.Q {
		mark := u.Arena.Mark()
		u.PrepareQ(b.Queries, b.LDQ, h, i0, i0+n)
		u.bandOutputGrad(&g, h, i0, n)
		g.Base = nil
		if far := rowscale.FarRowsOf(u.Arena, g.Top); far != nil {
			b.AddFarRows(far)
			far.Finish()
			g.Base = far.Base
		}
		b.Backward(&g)
		u.GradQ(h, i0, i0+n, g.DQueries, b.LDQ)
		u.Arena.Reset(mark)
	}
	u.Arena.Reset(mark)
	return lo, nk, g
}

// bandRows returns n rows of width elements, zero beyond them up to whole vectors.
func (u *Task) bandRows(n, width int) []float {
	if width%kernel.Lanes == 0 {
		return u.TakeScratch(n * scratch.Stride[float](width))
	}
	return arena.TakeZeros[float](u.Arena, n*scratch.Stride[float](width))
}

// bandOutputGrad sets DOut, Delta and Top of queries of head h from i0 on.
func (u *Task) bandOutputGrad(g *band.Grad, h, i0, n int) {
	blind := false // some query sees no key
	for r, den := range u.Den[h][i0:][:n] {
		if g.Top[r] = float(float64(den) * math.Log2E); math.IsInf(float64(den), -1) {
			g.Top[r], blind = 0, true
		}
	}
	do, o := &u.DO[h], &u.O[h]
	if g.DOut, g.LDO = do.Data[i0*do.Stride:], do.Stride; len(u.Shares) > 0 {
		shares := u.Shares[h][i0:][:n]
		g.DOut, g.LDO = u.bandRows(n, u.Dv), scratch.Stride[float](u.Dv)
		u.Table.ScaleRows(g.DOut, g.LDO, do.Data[i0*do.Stride:], do.Stride, u.Dv, shares)
		for r, share := range shares {
			if share == 0 {
				clear(g.DOut[r*g.LDO:][:u.Dv])
			}
		}
	} else if blind || u.Dv%kernel.Lanes != 0 {
		g.DOut, g.LDO = u.bandRows(n, u.Dv), scratch.Stride[float](u.Dv)
		for r := range n {
			row := g.DOut[r*g.LDO:][:u.Dv]
			if clear(row); !math.IsInf(float64(u.Den[h][i0+r]), -1) {
				copy(row, do.Row(i0+r))
			}
		}
	}
	u.Table.RowDots(g.Delta, g.DOut, g.LDO, o.Data[i0*o.Stride:], o.Stride, u.Dv)
	u.Table.Scale(g.Delta, -1, g.Delta)
}

// BandAges holds the log-decays between the far keys and the band of each query. Far
// weights are relative to the last unmasked far key, weights in the band to the last key
// that the query sees.
type BandAges struct {
	Fade  []float64 // log-decay from the last far key to the last visible key
	Waits []float64 // log_g after the last visible key
}

// BandAges returns the log-decays of a task's queries, the zero value without a decay.
// behind is the pending log_g before the first key.
func (u *Task) BandAges(behind float64) (x BandAges) {
	if len(u.LogG.Data) == 0 {
		return x
	}
	x.Fade, x.Waits = arena.TakeZeros[float64](u.Arena, u.N), arena.TakeZeros[float64](u.Arena, u.N)
	owes, next := behind, 0
	for i := range u.N {
		lo, end := u.Lowest(i), u.CountVisible(i)
		for ; next < lo; next++ {
			if owes = max(owes+u.LogDecay(next), Slowest); u.HasKey(next) {
				owes = 0
			}
		}
		sees := func(j int) bool { return u.HasKey(j) && (u.Keep == nil || u.Keep[i*u.KeepRow+j]) }
		before := owes // pending log-decay after the keys before the band
		if u.Keep != nil {
			before = 0
			for j := lo - 1; j >= 0 && !sees(j); j-- {
				before = max(before+u.LogDecay(j), Slowest)
			}
		}
		last := end - 1
		for ; last >= lo && !sees(last); last-- {
			x.Waits[i] = max(x.Waits[i]+u.LogDecay(last), Slowest)
		}
		if last < lo {
			x.Waits[i] = max(x.Waits[i]+before, Slowest)
			continue
		}
		for j := last; j >= lo; j-- {
			x.Fade[i] = max(x.Fade[i]+u.LogDecay(j), Slowest)
		}
		x.Fade[i] = max(x.Fade[i]+before, Slowest)
	}
	return x
}

// BandLeft returns for each query the number of keys before its band; with a decay, the sum of
// their decay factors up to the last of them. before describes the keys before the first key.
// The result is in scratch memory.
func (u *Task) BandLeft(before PriorKeys) []float64 {
	if u.Spec.IsSymmetric {
		return u.countFar()
	}
	left := arena.TakeZeros[float64](u.Arena, u.N)
	next := 0
	for i := range left {
		lo := u.Lowest(i)
		if u.Keep == nil {
			for ; next < lo; next++ {
				if before.PendingLogDecay += u.LogDecay(next); u.HasKey(next) {
					before.Add(before.PendingLogDecay, 1)
					before.PendingLogDecay = 0
				}
			}
			left[i] = before.Count
			continue
		}
		var age float64
		for j := lo - 1; j >= 0; j-- {
			if u.HasKey(j) && u.Keep[i*u.KeepRow+j] {
				left[i] += math.Exp(age)
			}
			if left[i] > 0 {
				age += u.LogDecay(j)
			}
		}
	}
	return left
}

// countFar returns for each query of a band the number of keys outside of it.
func (u *Geometry) countFar() []float64 {
	far := make([]float64, u.N)
	exist := make([]int, u.M+1) // unmasked keys before each
	for j := range u.M {
		exist[j+1] = exist[j]
		if u.HasKey(j) {
			exist[j+1]++
		}
	}
	for i := range far {
		lo, hi := u.Lowest(i), u.CountVisible(i)
		if u.Keep == nil {
			far[i] = float64(exist[lo] + exist[u.M] - exist[hi])
			continue
		}
		for j := range u.M {
			if (j < lo || j >= hi) && u.HasKey(j) && u.Keep[i*u.KeepRow+j] {
				far[i]++
			}
		}
	}
	return far
}

// Skip sets the outputs of the first n queries, or of all if there are fewer, to those of
// queries that see no key, and removes these queries from the task.
func (u *Task) Skip(n int) {
	if n = min(n, u.N); n <= 0 {
		return
	}
	for g := range u.Q {
		u.ClearUnseen(g, 0, n)
		u.Q[g], u.O[g], u.Den[g] = u.Q[g].Slice(n, u.N), u.O[g].Slice(n, u.N), u.Den[g][n:]
	}
	u.N, u.FirstPosition, u.Coords.Q0 = u.N-n, n, u.Coords.Q0+n
}

// PriorKeys describes the keys of one key head in the state before a call.
type PriorKeys struct {
	Count           float64 // number of keys; with decay the sum of their factors up to the last key
	PendingLogDecay float64 // log-decay that the next key will have
	Longest         float64 // length of the longest prepared key that is kept one by one
}

// Add adds an unmasked key that has the given weight. gone is the log-decay since the key
// before.
func (x *PriorKeys) Add(gone, factor float64) { x.Count = factor + x.Count*math.Exp(gone) }
