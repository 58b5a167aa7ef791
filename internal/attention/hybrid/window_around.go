package hybrid

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// This is the far field of an unmasked call under one denominator. A query at position p =
// i+M-N has the far keys j ≤ p-w before it and j ≥ p+w after it. The linear form sums the keys
// once, in both directions (headtask.TwoSidedForm). The direct form makes two sweeps, each of
// which is a causal tail with lag w: one over the sequence and one over the reversed sequence.
// The numerators and denominators of both are added; nothing is subtracted. Rows are prepared
// before the sweeps, so that rotations, masks and dropout use the positions of the call.

// farSweep is one key head of a sequence whose far field is summed.
type farSweep struct {
	*headtask.Task // of the tail, with prepared rows
	s              *engine.SequenceTask
	width          int  // of the window
	m              int  // keys of the head; the task has those that a query sees
	isReversed     bool // rows lie in reverse order

	q       []tensor.Mat // rows as they come
	k, v    tensor.Mat
	mask    []bool
	keys    tensor.Mat // prepared [m, da], and in reverse order after turn
	values  tensor.Mat
	keyMask []bool
}

// farSides returns the sequences of both sweeps over s: the keys that some query sees, and
// how queries are aligned with them.
func farSides(s *engine.SequenceTask, width int) [2]engine.SequenceTask {
	sides := [2]engine.SequenceTask{*s, *s}
	sides[0].Offset = s.Offset - width
	sides[1].Offset = s.M - s.N - s.Offset - width
	for i := range sides {
		sides[i].M = min(max(s.N+sides[i].Offset, 0), s.M)
	}
	return sides
}

// chunk returns the tokens of a chunk for width d: the caller's wish, or one that fits the
// window.
func (w *hybrid) chunk(d, wish int) int {
	if wish > 0 {
		return wish
	}
	return headtask.TwoSidedChunk(w.window.Width, w.tail.Chunk(d, 0))
}

// farCall returns c as both sides of the far field have it.
func (w *hybrid) farCall(c *attention.Call) *attention.Call {
	x := *c
	x.Causal, x.Chunk = true, w.chunk(c.Q.D, c.Chunk)
	return &x
}

// farCosts returns the costs of a key head of s in both forms.
func (w *hybrid) farCosts(c *attention.Call, s *engine.SequenceTask, back bool) (direct, linear float64) {
	return w.tail.CountTwoSidedCosts(w.farCall(c), farSides(s, w.window.Width), back)
}

// farForm chooses the form of the far field of s, as Engine.choose does.
func (w *hybrid) farForm(c *attention.Call, s *engine.SequenceTask, back bool) attention.Form {
	if c.AttnKeep != nil || c.Form == attention.Direct {
		return attention.Direct
	}
	if c.Form == attention.Linear {
		return attention.Linear
	}
	direct, linear := w.farCosts(c, s, back)
	return w.tail.ChooseCheaper(c, direct, linear)
}

// farFLOPs returns the arithmetic of the far field of s, all heads.
func (w *hybrid) farFLOPs(c *attention.Call, s *engine.SequenceTask) float64 {
	return w.tail.CountTwoSidedFLOPs(w.farCall(c), farSides(s, w.window.Width))
}

// planFar sets what p says of the far field of an unmasked call.
func (w *hybrid) planFar(p *attention.Plan, s attention.Shape) {
	c := &attention.Call{Form: s.Form, Chunk: s.Chunk}
	c.Q.H, c.Q.N, c.Q.D = s.H, s.N, s.D
	c.K.H, c.K.N, c.V.D = s.Hkv, s.M, s.Dv
	seq := &engine.SequenceTask{Sequence: attention.Sequence{N: s.N, M: s.M, Keys: s.M, Offset: s.M - s.N}}
	all := float64(s.B * s.Hkv)
	for _, back := range []bool{true, false} {
		form := w.farForm(c, seq, back)
		direct, linear := w.farCosts(c, seq, back)
		cost, why := w.tail.Explain(c, form, direct, linear)
		if back {
			p.Back, p.BackCost, p.BackWhy = form, all*cost, why
		} else {
			p.Form, p.Cost, p.Reason = form, all*cost, why
		}
	}
	seq.Form = p.Form
	p.FLOPs = w.farFLOPs(c, seq) * float64(s.B)
	chunk, group := w.chunk(s.D, s.Chunk), s.H/max(s.Hkv, 1)
	if p.Chunk = 0; p.Form == attention.Linear {
		p.Chunk = chunk
	}
	p.Bound = w.tail.Bound(s, p.Form, p.Chunk, p.F)
	da := w.tail.Spec.Width(s.D)
	rows := float64(group*s.N)*float64(da+kernel.Pad(s.Dv)) + float64(s.M)*float64(da+kernel.Pad(s.Dv))
	if p.Form == attention.Linear {
		rows += headtask.CountTwoSidedScratch(s.M, p.F, s.Dv, chunk)
	}
	p.Bytes = float64(scratch.ElementSize[float]()) * (rows + w.tail.CountScratch(p.Form, s.M, group, s.D, s.Dv, chunk))
}

// hasFar reports whether a query of s has far keys.
func (w *hybrid) hasFar(s *engine.SequenceTask) bool {
	sides := farSides(s, w.window.Width)
	return sides[0].M > 0 || sides[1].M > 0
}

// eachFar calls f for the far field of every key head of every sequence, and none where
// all keys are near.
func (w *hybrid) eachFar(c *attention.Call, back bool, f func(x *farSweep, kh int), none func(s *engine.SequenceTask, kh int)) {
	seqs := engine.SequenceTasks(c)
	var work float64
	for i := range seqs {
		s := &seqs[i]
		s.Form = w.farForm(c, s, back)
		if s.Work = w.farFLOPs(c, s); back {
			s.Work *= 3
		}
		work += s.Work
	}
	par.RunEach(len(seqs)*c.K.H, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		s, kh := &seqs[i/c.K.H], i%c.K.H
		if !w.hasFar(s) {
			none(s, kh)
			return
		}
		u := w.tail.NewTask(c, s, kh, ar)
		defer w.tail.Release(u)
		u.Workers = headtask.CountWorkers(c.K.H, s.Work, work)
		u.Chunk = w.chunk(c.Q.D, c.Chunk)
		x := &farSweep{Task: u, s: s, width: w.window.Width, m: u.M}
		if s.Form == attention.Linear {
			w.tail.MonomialsOf(u)
		} else {
			x.prepare()
		}
		f(x, kh)
	})
}

// prepare replaces the rows of the task by prepared ones.
func (x *farSweep) prepare() {
	u := x.Task
	x.q, x.k, x.v, x.mask = append(x.q, u.Q...), u.K, u.V, u.Mask
	for g := range u.Q {
		rows := scratch.TakeMat(u.Arena, u.N, u.PreparedWidth)
		u.PrepareQ(rows.Data, rows.Stride, g, 0, u.N)
		x.Task.Q[g] = rows
	}
	x.keys = scratch.TakeMat(u.Arena, x.m, u.PreparedWidth)
	u.PrepareK(x.keys.Data, x.keys.Stride, 0, x.m)
	x.values, x.keyMask = u.V, u.Mask
	u.HasPreparedQueries, u.HasPreparedKeys, u.Causal = true, true, true
	x.align()
}

// align has the task see the far keys of its sweep.
func (x *farSweep) align() {
	sides := farSides(x.s, x.width)
	side := &sides[0]
	if x.isReversed {
		side = &sides[1]
	}
	u := x.Task
	u.Offset, u.M = side.Offset, side.M
	u.K, u.V, u.Mask = x.keys.Slice(0, u.M), x.values.Slice(0, u.M), nil
	if x.keyMask != nil {
		u.Mask = x.keyMask[:u.M]
	}
}

// turn prepares the sweep over the reversed sequence.
func (x *farSweep) turn() {
	u := x.Task
	for g := range u.Q {
		reverseRows(u.Q[g])
	}
	reverseRows(x.keys)
	x.values = scratch.TakeMat(u.Arena, x.m, u.Dv)
	for j := range x.m {
		copy(x.values.Row(x.m-1-j), x.v.Row(j))
	}
	if x.mask != nil {
		x.keyMask = make([]bool, x.m)
		for j, exists := range x.mask {
			x.keyMask[x.m-1-j] = exists
		}
	}
	if u.Keep != nil {
		keep := make([]bool, u.N*x.m)
		for i := range u.N {
			for j, sees := range u.Keep[i*u.KeepRow:][:x.m] {
				keep[(u.N-1-i)*x.m+x.m-1-j] = sees
			}
		}
		u.Keep, u.KeepRow = keep, x.m
	}
	x.isReversed = true
	x.align()
}

// reverseRows reverses the order of the rows of x.
func reverseRows(x tensor.Mat) {
	for i, j := 0, x.Rows-1; i < j; i, j = i+1, j-1 {
		a, b := x.Row(i), x.Row(j)
		for c, y := range a {
			a[c], b[c] = b[c], y
		}
	}
}

// farForward sets out [B,H,N,Dv] to the numerators of the far field of an unmasked
// call, and keep.Den to their denominators.
func (w *hybrid) farForward(out tensor.Heads, c *attention.Call, keep *attention.Saved) {
	keep.Den = scratch.Grow(keep.Den[:0], c.Q.B*c.Q.H*c.Q.N)
	group := c.Q.H / max(c.K.H, 1)
	w.eachFar(c, false, func(x *farSweep, kh int) {
		u := x.Task
		u.O, u.Den = engine.HeadsOf(u.O, out, x.s, u.QueryHeads(kh)), engine.DenOf(u.Den, keep.Den, c, x.s, u.QueryHeads(kh))
		if x.s.Form == attention.Linear {
			u.TwoSided(x.width).Forward()
			return
		}
		x.Forward()
		o, den := append([]tensor.Mat(nil), u.O...), append([][]float(nil), u.Den...)
		for g := range u.O {
			u.O[g], u.Den[g] = scratch.TakeMat(u.Arena, u.N, kernel.Pad(u.Dv)), u.TakeScratch(u.N)
			u.O[g].Cols = u.Dv
		}
		x.turn()
		x.Forward()
		for g := range o {
			for i := range u.N {
				row := o[g].Row(i)
				u.Table.Add(row, row, u.O[g].Row(u.N-1-i))
				den[g][i] += u.Den[g][u.N-1-i]
			}
		}
	}, func(s *engine.SequenceTask, kh int) {
		for g := range group {
			h := kh*group + g
			scratch.ClearRows(out.Head(s.Batch, h), s.Q0, s.Q0+s.N)
			clear(keep.Den[(s.Batch*c.Q.H+h)*c.Q.N+s.Q0:][:s.N])
		}
	})
}

// Forward sets the numerators and denominators of a sweep.
func (x *farSweep) Forward() {
	u := x.Task
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	if u.M > 0 {
		u.DirectForward()
		return
	}
	for g := range u.Q {
		u.ClearUnseen(g, 0, u.N)
	}
}

// farBackward sets the gradients in g of the far field of an unmasked call, from the
// outputs and gradients in p.
func (w *hybrid) farBackward(g *attention.Grads, p *splitGrads, c *attention.Call) {
	group := c.Q.H / max(c.K.H, 1)
	dscale := make([]float64, len(c.Sequences())*c.Q.H)
	w.eachFar(c, true, func(x *farSweep, kh int) {
		u, s := x.Task, x.s
		heads := u.QueryHeads(kh)
		u.O, u.DO, u.DQ = engine.HeadsOf(u.O, p.tailO, s, heads), engine.HeadsOf(u.DO, p.tailDo, s, heads), engine.HeadsOf(u.DQ, g.DQ, s, heads)
		u.Den = engine.DenOf(u.Den, p.tail.Den, c, s, heads)
		u.DScale = dscale[s.Index*c.Q.H+kh*group:][:group]
		dk, dv := g.DK.Head(s.Batch, kh).Slice(s.K0, s.K0+s.Keys), g.DV.Head(s.Batch, kh).Slice(s.K0, s.K0+s.Keys)
		if s.Form == attention.Linear {
			u.DK, u.DVal = dk.Slice(0, u.M), dv.Slice(0, u.M)
			u.TwoSided(x.width).Backward()
		} else {
			x.Backward(dk, dv)
		}
		scratch.ClearRows(dk, x.m, dk.Rows) // keys beyond the key length
		scratch.ClearRows(dv, x.m, dv.Rows)
	}, func(s *engine.SequenceTask, kh int) {
		for h := range group {
			scratch.ClearRows(g.DQ.Head(s.Batch, kh*group+h), s.Q0, s.Q0+s.N)
		}
		for _, x := range []*tensor.Heads{&g.DK, &g.DV} {
			scratch.ClearRows(x.Head(s.Batch, kh), s.K0, s.K0+s.Keys)
		}
	})
	w.tail.AddTau(dscale, c)
}

// Backward sets dQ of the task, and the gradients dk [Keys, D] and dv [Keys, Dv] of its keys
// and values.
func (x *farSweep) Backward(dk, dv tensor.Mat) {
	u := x.Task
	dqs := append([]tensor.Mat(nil), u.DQ...)
	sum := x.sweepBoth()

	// Back through the preparation of the rows.
	copy(u.Q, x.q)
	u.K, u.V, u.Mask, u.M = x.k, x.v, x.mask, x.m
	u.HasPreparedQueries, u.HasPreparedKeys = false, false
	copy(u.DQ, dqs)
	for g := range u.Q {
		u.GradQ(g, 0, u.N, sum.q[g].Data, sum.q[g].Stride)
	}
	u.DK = dk.Slice(0, x.m)
	u.GradK(0, x.m, sum.k.Data, sum.k.Stride)
	for j := range x.m {
		copy(dv.Row(j), sum.v.Row(j))
	}
}

// sweepGrad is the gradient of prepared queries [n, da] per head, prepared keys [m, da]
// and values [m, Dv].
type sweepGrad struct {
	q    []tensor.Mat
	k, v tensor.Mat
}

// sweepBoth returns the gradients of both sweeps.
func (x *farSweep) sweepBoth() sweepGrad {
	u := x.Task
	outputs, douts := append([]tensor.Mat(nil), u.O...), append([]tensor.Mat(nil), u.DO...)
	sum := x.sweepBack()
	x.turn()
	for g := range u.Q {
		u.O[g], u.DO[g] = reversedRows(u.Arena, outputs[g]), reversedRows(u.Arena, douts[g])
	}
	ahead := x.sweepBack()
	for g := range u.Q {
		addReversed(u.Table, sum.q[g], ahead.q[g])
	}
	addReversed(u.Table, sum.k, ahead.k)
	addReversed(u.Table, sum.v, ahead.v)
	return sum
}

// sweepBack returns the gradients of a sweep, in scratch memory.
func (x *farSweep) sweepBack() sweepGrad {
	u := x.Task
	d := sweepGrad{k: scratch.ZeroMat(u.Arena, x.m, u.PreparedWidth), v: scratch.ZeroMat(u.Arena, x.m, u.Dv)}
	for g := range u.Q {
		d.q = append(d.q, scratch.ZeroMat(u.Arena, u.N, u.PreparedWidth))
		u.DQ[g] = d.q[g]
	}
	u.DK, u.DVal = d.k.Slice(0, u.M), d.v.Slice(0, u.M)
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	if u.M > 0 {
		u.DirectBackward()
	}
	return d
}

// reversedRows returns the rows of x in reverse order, in scratch memory.
func reversedRows(ar *arena.Arena, x tensor.Mat) tensor.Mat {
	y := scratch.TakeMat(ar, x.Rows, x.Cols)
	for i := range x.Rows {
		copy(y.Row(x.Rows-1-i), x.Row(i))
	}
	return y
}

// addReversed adds the rows of x, in reverse order, to y.
func addReversed(t *kernel.Table[float], y, x tensor.Mat) {
	for i := range y.Rows {
		t.Add(y.Row(i), y.Row(i), x.Row(x.Rows-1-i))
	}
}

// farWeights sets rows of dst [rows, M] to the weights of the far keys of queries from i0
// on, and 0 elsewhere.
func (x *windowMatrix) farWeights(dst tensor.Mat, i0 int) {
	u := *x.tail
	u.Q = append([]tensor.Mat(nil), u.Q...)
	u.Q[x.g] = u.Q[x.g].Slice(i0, i0+dst.Rows)
	u.N, u.FirstPosition, u.Coords.Q0 = dst.Rows, u.FirstPosition+i0, u.Coords.Q0+i0
	keep := make([]bool, dst.Rows*u.M)
	for r := range dst.Rows {
		for j := range u.M {
			near := x.window.Lowest(i0+r) <= j && j < x.window.CountVisible(i0+r)
			keep[r*u.M+j] = !near && (u.Keep == nil || u.Keep[(i0+r)*u.KeepRow+j])
		}
	}
	u.Keep, u.KeepRow = keep, u.M
	u.DirectWeights(dst, x.g, 0, dst.Rows)
}
