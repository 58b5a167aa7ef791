package hybrid

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Under one denominator, a row is joined from the sums of the tail and from the mean of the
// window times the sum of its weights. Numerators and denominators of both parts are divided by
// the larger of the two parts of the denominator before they are added. So nothing overflows,
// and the quotient does not change.

// joinedRow holds flags of a joined row.
type joinedRow uint8

const (
	negativeRow joinedRow = 1 << iota // its denominator is below 0
	taillessRow                       // nothing comes from the tail
	unseenRow
	weakRow
)

// joinTask is a key head of a sequence whose two parts are to be joined.
type joinTask struct {
	windowTask *headtask.Task // with the outputs of the window and the sums of its weights
	o          []tensor.Mat   // numerators of the tail, and then outputs
	tail       [][]float      // denominators of the tail
	ages       headtask.BandAges

	den         [][]float              // logarithms of the joined denominators; empty: the next fields are not kept
	rows        [][]joinedRow          // flags of the rows
	share       [][]float              // the window's share of each denominator
	tailFactors [][]float              // factors of the tail's numerators; 0: none, or it overflows
	tailKeys    []float64              // number of keys of the tail; with decay the sum of their factors
	reach       func(g, i int) float64 // bound of the tail's scores; nil: no row is ill-conditioned
	isPositive  bool                   // weights of the tail are never negative
}

// windowTask is the work on both parts of a call, key head by key head: it joins their outputs,
// or divides the gradients between them.
type windowTask struct {
	w    *hybrid
	c    *attention.Call
	seqs []engine.SequenceTask

	// Forward.
	out   tensor.Heads
	saved *windowSaved
	keep  *attention.Saved // nil: nothing is kept

	gradients *splitGrads // Backward; nil: Forward
}

// run does all key heads.
func (k windowTask) run() {
	par.Run(len(k.seqs)*k.c.K.H, 1, k.w.joining(k.c), k)
}

// RunRange computes key heads lo ≤ i < hi, counted over all sequences.
func (k *windowTask) RunRange(lo, hi int) {
	for i := lo; i < hi; i++ {
		k.w.withUnit(k.c, k.seqs, i, k)
	}
}

// withUnit calls do of a task with the task of the window for key head i of all
// sequences.
func (w *hybrid) withUnit(c *attention.Call, seqs []engine.SequenceTask, i int, k interface {
	Do(u *headtask.Task, s *engine.SequenceTask, kh int)
}) {
	ar := arena.Acquire()
	defer ar.Release()
	s, kh := &seqs[i/c.K.H], i%c.K.H
	near := w.nearOf(c.Causal)
	u := near.NewTask(c, s, kh, ar)
	defer near.Release(u)
	k.Do(u, s, kh)
}

func (k *windowTask) Do(u *headtask.Task, s *engine.SequenceTask, kh int) {
	w, c, heads := k.w, k.c, u.QueryHeads(kh)
	if k.gradients != nil {
		w.partHeads(k.gradients, c, s, heads, u.BandAges(0))
		return
	}
	u.O = engine.HeadsOf(u.O, tensor.HeadsOf(k.saved.o, c.Q.B, c.Q.H, c.Q.N, c.V.D), s, heads)
	u.Sums = engine.SumsOf(u.Sums, &k.saved.sums, c, s, heads)
	x := w.takeJoint()
	defer w.putJoint(x)
	x.windowTask, x.ages = u, u.BandAges(0)
	x.o, x.tail = engine.HeadsOf(x.o, k.out, s, heads), engine.DenOf(x.tail, k.saved.tail.Den, c, s, heads)
	if k.keep != nil {
		w.keepRows(x, c, s, kh, headtask.PriorKeys{}, k.saved, k.keep)
	}
	for g := range heads.N {
		w.joinRows(x, g, heads.Lo+g)
	}
}

// takeJoint returns a joint without rows.
func (w *hybrid) takeJoint() *joinTask {
	if x, _ := w.joints.Get().(*joinTask); x != nil {
		return x
	}
	return new(joinTask)
}

// putJoint keeps x for another call, without its rows.
func (w *hybrid) putJoint(x *joinTask) {
	clear(x.o)
	for _, list := range [][][]float{x.tail, x.den, x.share, x.tailFactors} {
		clear(list)
	}
	clear(x.rows)
	*x = joinTask{o: x.o[:0], tail: x.tail[:0], den: x.den[:0], share: x.share[:0], tailFactors: x.tailFactors[:0], rows: x.rows[:0]}
	w.joints.Put(x)
}

// join makes outputs of numerators out.
func (w *hybrid) join(out tensor.Heads, c *attention.Call, seqs []engine.SequenceTask, saved *windowSaved, keep *attention.Saved) {
	if keep != nil {
		resizeSaved(keep, c)
		saved.resize(len(keep.Den))
	}
	windowTask{w: w, c: c, seqs: seqs, out: out, saved: saved, keep: keep}.run()
	if keep != nil {
		saved.count(c, seqs, keep)
	}
}

// joining is the arithmetic of join.
func (w *hybrid) joining(c *attention.Call) float64 {
	return 4 * float64(c.Q.B) * float64(c.Q.H) * float64(c.Q.N) * float64(c.V.D+16)
}

// resizeSaved makes room for denominators, and nothing has been noticed.
func resizeSaved(k *attention.Saved, c *attention.Call) {
	k.Den = scratch.Grow(k.Den[:0], c.Q.B*c.Q.H*c.Q.N)
	k.UnseenCount, k.WeakCount, k.Aux, k.Residual = 0, 0, 0, 0
}

// keepRows makes x keep what Backward needs, and record the rows that see no key or are
// weak. before describes the tail's keys in the state before the sequence.
func (w *hybrid) keepRows(x *joinTask, c *attention.Call, s *engine.SequenceTask, kh int, before headtask.PriorKeys, saved *windowSaved, keep *attention.Saved) {
	group := len(x.o)
	heads := headtask.HeadRange{Lo: kh * group, N: group}
	x.den, x.share, x.tailFactors = engine.DenOf(x.den, keep.Den, c, s, heads), engine.DenOf(x.share, saved.share, c, s, heads), engine.DenOf(x.tailFactors, saved.tailFactors, c, s, heads)
	for g := range group {
		x.rows = append(x.rows, saved.rows[(s.Batch*c.Q.H+kh*group+g)*c.Q.N+s.Q0:][:s.N])
	}
	x.tailKeys = x.windowTask.BandLeft(before)
	if !w.tail.IsWellConditioned(c) {
		longest := w.tail.LongestKeys(c, s, c.Mask(&s.Sequence))
		if longest != nil {
			longest[kh] = max(longest[kh], before.Longest)
		}
		x.isPositive = w.tail.Spec.IsPositive(headtask.ScoreGain(c.Drop))
		x.reach = func(g, i int) float64 { return w.tail.BoundScore(c, s, longest, kh*group+g, i) }
	}
}

// count counts the rows that see nothing and those that are weak.
func (saved *windowSaved) count(c *attention.Call, seqs []engine.SequenceTask, keep *attention.Saved) {
	for i := range seqs {
		s := &seqs[i]
		for r := range s.N {
			for h := range c.Q.H {
				row := saved.rows[(s.Batch*c.Q.H+h)*c.Q.N+s.Q0+r]
				if row&unseenRow != 0 {
					keep.UnseenCount++
				}
				if row&weakRow != 0 {
					if keep.WeakCount == 0 {
						keep.WeakAt = [3]int{s.Batch, h, s.Q0 + r}
					}
					keep.WeakCount++
				}
			}
		}
	}
}

// joinedSums are the parts of a joined denominator over e^top: a weight of 1 in
// the tail, the sum of the window, and the sum of both. e^fade is the decay of the
// tail's weights.
type joinedSums struct{ top, fade, one, window, sum float64 }

// sums returns the parts for query i, from the denominator of the tail and the logarithm
// of the window's, with γ in it.
func (w *hybrid) sums(tail, near float64, ages headtask.BandAges, i int) (p joinedSums) {
	eps := math.Log(w.eps)
	if ages.Fade != nil {
		p.fade, eps = ages.Fade[i], eps-ages.Waits[i]
	}
	size := math.Log(math.Abs(tail)) + p.fade
	if p.top = max(size, near, eps); p.isZero() {
		return p
	}
	p.one, p.window = math.Exp(p.fade-p.top), math.Exp(near-p.top)
	if math.IsInf(p.one, 1) { // the tail has next to nothing, or nothing
		p.sum = math.Copysign(math.Exp(size-p.top), tail)
	} else {
		p.sum = tail * p.one
	}
	p.sum = p.sum + p.window + math.Exp(eps-p.top)
	return p
}

// A joined denominator between leastSum and 1/leastSum, of a window whose power of
// 2 is at most largestTop, is summed as it is. Nothing overflows or vanishes.
const (
	leastSum   = 1e-30
	largestTop = 64
)

// plainSums is sums over e^0 for the window's sum near of weights over 2^top, and
// reports whether it can be.
func (w *hybrid) plainSums(tail, near, top, gamma float64) (p joinedSums, ok bool) {
	if !(math.Abs(top) <= largestTop) {
		return p, false
	}
	const bias, mantissa = 1023, 52 // of float64
	p.one = 1
	p.window = gamma * near * math.Float64frombits(uint64(int64(top)+bias)<<mantissa)
	p.sum = tail + p.window + w.eps
	return p, p.sum >= leastSum && p.sum <= 1/leastSum && p.window > 0
}

// factors returns what the tail's numerators are multiplied by, and what the
// window's part of the denominator is of the whole.
func (p *joinedSums) factors() (over, share float64) {
	over = 1 / p.sum
	if p.window != 0 {
		share = p.window * over
	}
	return p.one * over, share
}

// isZero reports whether no key has any weight.
func (p *joinedSums) isZero() bool { return math.IsInf(p.top, -1) }

// log is the logarithm of the denominator's size.
func (p *joinedSums) log() float64 { return p.top + math.Log(math.Abs(p.sum)) }

// isIllConditioned reports whether the denominator nearly cancels; see Saved.WeakCount. left is
// the number of keys of the tail, with decay the sum of their factors, and reach bounds their
// scores. Weights of the tail may be negative unless isPositive is set.
func (w *hybrid) isIllConditioned(p *joinedSums, left, reach float64, isPositive bool) bool {
	if isPositive {
		return p.isZero()
	}
	if math.IsInf(reach, 1) {
		reach = 0 // nothing bounds the scores of mapped rows
	}
	most := p.window
	if left > 0 { // p.one may be infinite
		most = w.tail.Spec.AbsPoly(reach)*left*p.one + p.window
	}
	return !(p.sum >= most/1024) || p.sum <= 0
}

// scaleTail sets dst to what numerators x of the tail are in the joined row.
func scaleTail(t *kernel.Table[float], dst []float, p *joinedSums, x []float) {
	if over, _ := p.factors(); !math.IsInf(float64(float(over)), 0) {
		t.Scale(dst, float(over), x)
		return
	}
	scaleExp(dst, math.Copysign(1, p.sum), p.fade-p.log(), x)
}

// scaleExp sets dst to sign·e^log·x, where e^log is beyond all numbers. Zeros stay.
func scaleExp(dst []float, sign, log float64, x []float) {
	half := math.Exp(log / 2)
	for c, y := range x {
		if dst[c] = y; y != 0 {
			dst[c] = float(sign * float64(y) * half * half)
		}
	}
}

// joinedAtOnce is the number of rows that are joined at a time.
const joinedAtOnce = 64

// joinRows joins the rows of head g of the group, which is query head h.
func (w *hybrid) joinRows(x *joinTask, g, h int) {
	u, logGamma := x.windowTask, w.logGamma(h)
	gamma := math.Exp(logGamma)
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	size := min(joinedAtOnce, u.N)
	far, near := u.TakeScratch(size), u.TakeScratch(size) // factors of the parts of rows
	o, own, sums := &x.o[g], &u.O[g], &u.Sums[g]
	first := 0
	finish := func(end int) {
		if end > first {
			rows := o.Data[first*o.Stride:]
			u.Table.MixRows(rows, o.Stride, rows, o.Stride, far[:end-first], own.Data[first*own.Stride:], own.Stride, near, u.Dv)
		}
		first = end
	}
	for i := range u.N {
		if i == first+size {
			finish(i)
		}
		tail := float64(x.tail[g][i])
		var p joinedSums
		plain := false
		if x.ages.Fade == nil && sums.Base[i] == 0 {
			p, plain = w.plainSums(tail, float64(sums.Sum[i]), float64(sums.Top[i]), gamma)
		}
		if !plain {
			finish(i)
			first++
			w.joinRow(x, g, i, tail, logGamma)
			continue
		}
		over, share := p.factors()
		if len(x.den) > 0 {
			w.keepRow(x, g, i, &p, tail, float64(sums.Sum[i]))
		}
		far[i-first], near[i-first] = float(over), float(share)
	}
	finish(u.N)
}

// joinRow joins row i of head g of the group. Its denominator may be of any size.
func (w *hybrid) joinRow(x *joinTask, g, i int, tail, logGamma float64) {
	t, o := x.windowTask.Table, x.o[g].Row(i)
	near := float64(x.windowTask.Sums[g].Log(i, math.Log2E))
	p := w.sums(tail, logGamma+near, x.ages, i)
	if len(x.den) > 0 {
		w.keepRow(x, g, i, &p, tail, float64(x.windowTask.Sums[g].Sum[i]))
	}
	if p.isZero() {
		if clear(o); x.windowTask.SeesAnyKey(i) { // scores that have overflowed
			t.Scale(o, float(math.NaN()), o)
		}
		return
	}
	scaleTail(t, o, &p, o)
	if _, share := p.factors(); share != 0 {
		t.Axpy(o, float(share), x.windowTask.O[g].Row(i))
	}
}

// keepRow keeps what is known of a row before it is joined; window is the sum of
// its window.
func (w *hybrid) keepRow(x *joinTask, g, i int, p *joinedSums, tail, window float64) {
	var row joinedRow
	if p.sum < 0 {
		row |= negativeRow
	}
	if tail == 0 && !slices.ContainsFunc(x.o[g].Row(i), func(y float) bool { return y != 0 }) {
		row |= taillessRow
	}
	over, share := p.factors()
	x.den[g][i], x.share[g][i], x.tailFactors[g][i] = float(p.log()), float(share), 0
	if over := float(over); row&taillessRow == 0 && !p.isZero() && !math.IsInf(float64(over), 0) {
		x.tailFactors[g][i] = over
	}
	switch {
	case window == 0 && x.tailKeys[i] == 0:
		row |= unseenRow
		x.den[g][i] = float(math.Inf(-1))
	case x.reach != nil && w.isIllConditioned(p, x.tailKeys[i], x.reach(g, i), x.isPositive):
		row |= weakRow
	}
	x.rows[g][i] = row
}

// splitGrads holds, for each of the two parts, the output, its gradient and the denominators
// that replace those of the joined row. With the common denominator g, the gradient of the
// tail's numerators and denominators is
//
//	[do, -(do·o)]/g.
//
// The weights of the joined row are the window's own weights times the window's share of g. The
// share is multiplied into do; for a negative g it is negative.
type splitGrads struct {
	dout, out tensor.Heads
	own       tensor.Heads // outputs of the window without the tail
	keep      *attention.Saved

	tailDo, tailO, nearDo, nearO tensor.Heads
	tail                         *attention.Saved // of the tail
	dgamma                       []float64        // [sequences, H] derivatives by log γ
}

// part makes room for it.
func (w *hybrid) part(dout, out tensor.Heads, c *attention.Call, sequences int, keep *attention.Saved, room *windowScratch) *splitGrads {
	own := tensor.HeadsOf(savedOf(keep).o, c.Q.B, c.Q.H, c.Q.N, c.V.D)
	x := &room.gradients
	*x = splitGrads{dout: dout, out: out, own: own, keep: keep, tailDo: dout, tailO: out, nearDo: likeOutput(&room.nearDo, c), nearO: own, tail: keep}
	if w.oneDenominator() {
		x.tailDo, x.nearO, x.tail = likeOutput(&room.tailDo, c), out, &savedOf(keep).tail
	} else {
		x.tailO = likeOutput(&room.o, c)
	}
	room.dgamma = scratch.Grow(room.dgamma[:0], sequences*c.Q.H)
	x.dgamma = room.dgamma
	return x
}

// partHeads parts the rows of some heads of a sequence.
func (w *hybrid) partHeads(x *splitGrads, c *attention.Call, s *engine.SequenceTask, heads headtask.HeadRange, ages headtask.BandAges) {
	for h := heads.Lo; h < heads.Lo+heads.N; h++ {
		at := (s.Batch*c.Q.H+h)*c.Q.N + s.Q0
		of := func(x tensor.Heads) tensor.Mat { return x.Head(s.Batch, h).Slice(s.Q0, s.Q0+s.N) }
		rows := partedRows{
			do: of(x.dout), o: of(x.out), own: of(x.own), windowDen: savedOf(x.keep).window.Den[at:][:s.N], ages: ages,
			tailDo: of(x.tailDo), tailO: of(x.tailO),
		}
		if x.nearDo.D > 0 {
			rows.nearDo = of(x.nearDo)
		}
		if w.oneDenominator() {
			rows.joined, rows.share, rows.rows = x.keep.Den[at:][:s.N], savedOf(x.keep).share[at:][:s.N], savedOf(x.keep).rows[at:][:s.N]
			rows.tailFactors = savedOf(x.keep).tailFactors[at:][:s.N]
		}
		x.dgamma[s.Index*c.Q.H+h] = w.partRows(&rows, h)
	}
}

// partedRows holds the rows of a head that are split between tail and window. The inputs are
// do and o and, with one denominator, its logarithm (joined), the window's share of it
// and the kinds of the rows; the other fields are computed from them.
type partedRows struct {
	do, o, own               tensor.Mat // own is of the window alone
	windowDen, joined, share []float
	tailFactors              []float // factors of the tail's gradients; 0: to be computed
	rows                     []joinedRow
	ages                     headtask.BandAges
	tailDo, tailO, nearDo    tensor.Mat
}

// partRows is part for query head h. It returns the derivative by log γ.
func (w *hybrid) partRows(x *partedRows, h int) (dgamma float64) {
	t, gamma := kernel.Active[float](), w.logGamma(h)
	factor := float(math.Exp(gamma))
	learned := w.window.LogGamma != nil
	if !w.oneDenominator() {
		for i := range x.do.Rows {
			do := x.do.Row(i)
			copy(x.tailO.Row(i), x.o.Row(i))
			t.Axpy(x.tailO.Row(i), -factor, x.own.Row(i))
			t.Scale(x.nearDo.Row(i), factor, do)
			if learned && !math.IsInf(float64(x.windowDen[i]), -1) {
				dgamma += float64(factor) * float64(t.Dot(do, x.own.Row(i)))
			}
		}
		return dgamma
	}
	hasNear := x.nearDo.Rows > 0
	if hasNear {
		t.ScaleRows(x.nearDo.Data, x.nearDo.Stride, x.do.Data, x.do.Stride, x.do.Cols, x.share)
	}
	t.ScaleRows(x.tailDo.Data, x.tailDo.Stride, x.do.Data, x.do.Stride, x.do.Cols, x.tailFactors)
	for i, share := range x.share {
		switch {
		case share == 0 && hasNear:
			clear(x.nearDo.Row(i))
		case share != 0 && learned:
			do := x.do.Row(i)
			dgamma += float64(share) * (float64(t.Dot(do, x.own.Row(i))) - float64(t.Dot(do, x.o.Row(i))))
		}
		if x.tailFactors[i] != 0 {
			continue
		}
		den, sign, fade := float64(x.joined[i]), 1.0, 0.0
		if x.rows[i]&negativeRow != 0 {
			sign = -1
		}
		if x.ages.Fade != nil {
			fade = x.ages.Fade[i]
		}
		tail := x.tailDo.Row(i)
		if x.rows[i]&taillessRow != 0 || math.IsInf(den, -1) {
			clear(tail)
		} else {
			scaleExp(tail, sign, fade-den, x.do.Row(i))
		}
	}
	return dgamma
}

// addEpsAges adds to the gradient of log_g its part through an eps beside one
// denominator; see ageQueries.
func (w *hybrid) addEpsAges(d, dout, out tensor.Heads, c *attention.Call, seqs []engine.SequenceTask, keep *attention.Saved) {
	if w.eps == 0 || !w.oneDenominator() {
		return
	}
	par.RunEach(len(seqs)*c.K.H, w.joining(c), func(i int) {
		w.withUnit(c, seqs, i, &epsAges{w, c, d, dout, out, keep})
	})
}

// epsAges is addEpsAges of a head.
type epsAges struct {
	w            *hybrid
	c            *attention.Call
	d, dout, out tensor.Heads
	keep         *attention.Saved
}

func (k *epsAges) Do(u *headtask.Task, s *engine.SequenceTask, kh int) {
	u.DAge = arena.TakeZeros[float64](u.Arena, max(u.PositionCount(), u.M+1))
	k.w.ageEps(u, u.BandAges(0), k.dout, k.out, k.c, s, u.QueryHeads(kh), k.keep)
	first := 0
	for first < u.M && !u.HasKey(first) {
		first++
	}
	var sum float64
	to := k.d.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	for j := len(u.DAge) - 1; j > first; j-- {
		if sum += u.DAge[j]; j < u.M {
			to.Row(j)[0] += float(sum)
		}
	}
}

// ageEps adds to dG of the task's positions the part that comes from eps; see ageQueries.
func (w *hybrid) ageEps(u *headtask.Task, ages headtask.BandAges, dout, out tensor.Heads, c *attention.Call, s *engine.SequenceTask, heads headtask.HeadRange, keep *attention.Saved) {
	for h := heads.Lo; h < heads.Lo+heads.N && w.eps != 0; h++ {
		for i := range s.N {
			at := (s.Batch*c.Q.H+h)*c.Q.N + s.Q0 + i
			if savedOf(keep).rows[at]&unseenRow != 0 {
				continue
			}
			// Where Waits is so low that its difference to Den, which is rounded, means nothing, the
			// output is 0.
			dot := float64(u.Table.Dot(dout.Head(s.Batch, h).Row(s.Q0+i), out.Head(s.Batch, h).Row(s.Q0+i)))
			if dot == 0 {
				continue
			}
			x := math.Exp(math.Log(w.eps) - ages.Waits[i] - float64(keep.Den[at]))
			if savedOf(keep).rows[at]&negativeRow != 0 {
				x = -x
			}
			u.DAge[i+u.Offset] += x * dot
		}
	}
}
