package engine

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/attention/internal/band"
	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// Chunk returns the tokens of a chunk for width d: the caller's wish, or 64 to
// 256 as the features of a token outnumber the keys of a chunk.
func (e formChoice[T]) Chunk(d, wish int) int {
	switch {
	case wish > 0:
		return wish
	case e.Spec.Degree() == 1:
		return 64
	case d <= 32:
		return 96
	}
	return 256
}

// choose returns the form that sequence s runs in, forward or backward: the one
// that costs less by the table. It depends on the mechanism, the instruction
// set and the sequence's own shape alone: threads, batch, padding or a wish for
// gradients would change bits.
func (e formChoice[T]) choose(c *contract.Call[T], s *SequenceTask, back bool) contract.Form {
	if e.Spec.IsPairwise() || c.AttnKeep != nil || c.Form == contract.Direct {
		return contract.Direct
	}
	if c.Form == contract.Linear {
		return contract.Linear
	}
	direct, linear := e.CountCosts(c, s, back)
	return e.ChooseCheaper(c, direct, linear)
}

// ChooseCheaper returns the form that costs less, if its moments may be kept.
func (e formChoice[T]) ChooseCheaper(c *contract.Call[T], direct, linear float64) contract.Form {
	if linear < direct && e.Checks().checkMoments(c.Q.D, c.V.D) == nil {
		return contract.Linear
	}
	return contract.Direct
}

// CountFLOPs is the arithmetic of Forward for one sequence, all heads.
func (e formChoice[T]) CountFLOPs(c *contract.Call[T], s *SequenceTask) float64 {
	d, l := e.CountOperations(s.N, s.M, c.Q.D, c.V.D, c.Causal, e.Chunk(c.Q.D, c.Chunk))
	if s.Form == contract.Direct {
		return d * float64(c.Q.H)
	}
	// Heads that share a key head share its moments.
	return l*float64(c.Q.H) - e.countSumOperations(s.M, c.Q.D, c.V.D)*float64(c.Q.H-c.K.H)
}

// CountOperations returns the floating-point operations of one head in both forms, for n
// queries and m keys: 2 per fused multiply-add.
func (e formChoice[T]) CountOperations(n, m, d, dv int, causal bool, chunk int) (direct, linear float64) {
	w := float64(e.Spec.Width(d))
	pairs := float64(n) * float64(m)
	switch {
	case e.Spec.WindowWidth > 0:
		pairs = float64(n) * float64(min(e.Spec.WindowWidth, m))
	case causal:
		pairs /= 2
	}
	direct = 2 * pairs * (w + float64(dv) + 3)
	linear = e.countSumOperations(m, d, dv) + e.countSumOperations(n, d, dv)
	if causal {
		linear += float64(min(n, m)) * float64(chunk) * (w + float64(dv) + 3)
	}
	return direct, linear
}

// countSumOperations is the arithmetic of bringing n tokens of one head and its moments
// together: per feature one product to make it, and multiply-adds with the
// values and the ones.
func (e formChoice[T]) countSumOperations(n, d, dv int) float64 {
	return 2 * float64(e.Spec.CountFeatures(e.Spec.Width(d))) * float64(n) * (float64(dv) + 1.5)
}

// CountScratch is the number of elements that a key head takes in Forward, as the
// engines ask for them: in the direct form its prepared keys, its values and a
// block of queries with their outputs and weights; in the linear form the
// moments, the open chunk, and a block of features.
func (e formChoice[T]) CountScratch(form contract.Form, m, group, d, dv, chunk int) float64 {
	w, v := e.Spec.Width(d), kernel.Pad(dv)
	if e.Spec.WindowWidth > 0 {
		nk := min(e.Spec.WindowWidth+headtask.QueryBlock-1, m)
		rows := band.TileRows(w)
		tile := rows * (kernel.Pad(min(e.Spec.WindowWidth+rows, m)) + kernel.Lanes + v)
		return float64(w*scratch.Stride[T](nk) + nk*scratch.Stride[T](dv) + headtask.QueryBlock*(scratch.Stride[T](w)+5) + tile)
	}
	if form == contract.Direct {
		keys := math.Ceil(float64(m)/headtask.KeyBlock) * float64(w*scratch.Stride[T](min(m, headtask.KeyBlock)))
		rows := group * (w*scratch.Stride[T](headtask.QueryBlock) + headtask.QueryBlock*(scratch.Stride[T](dv)+2))
		return keys + float64(m)*float64(scratch.Stride[T](dv)) + float64(rows+min(headtask.QueryBlock, headtask.MaxRows(m))*scratch.Stride[T](min(m, headtask.KeyBlock)))
	}
	f := float64(e.Spec.CountFeatures(w))
	ld := scratch.Stride[T](chunk)
	return f*float64(v+1) + float64(2*(w+1)*ld+2*chunk*v+min(features.BlockSize, int(f))*ld+chunk*(w+1)+min(chunk, headtask.MaxRows(chunk))*ld)
}

// Plan tells what Forward and Backward do for a shape.
func (e *Engine[T]) Plan(s contract.Shape) contract.Plan {
	c := &contract.Call[T]{Causal: s.Causal, Form: s.Form, Chunk: s.Chunk}
	c.Q.H, c.Q.N, c.Q.D = s.H, s.N, s.D
	c.K.H, c.K.N, c.V.D = s.Hkv, s.M, s.Dv
	seq := &SequenceTask{Sequence: contract.Sequence{N: s.N, M: s.M, Keys: s.M, Offset: s.M - s.N}}
	p := contract.Plan{F: e.Spec.CountFeatures(e.Spec.Width(s.D)), WidthError: e.Checks().checkMoments(s.D, s.Dv)}
	all := float64(s.B * s.Hkv)
	p.Back, p.BackCost, p.BackWhy = e.Forms().reason(c, seq, true)
	p.Form, p.Cost, p.Reason = e.Forms().reason(c, seq, false)
	p.Cost, p.BackCost = all*p.Cost, all*p.BackCost
	seq.Form = p.Form
	p.FLOPs = e.Forms().CountFLOPs(c, seq) * float64(s.B)
	chunk := e.Forms().Chunk(s.D, s.Chunk)
	switch {
	case e.Spec.IsPairwise():
	case s.Form == contract.Step:
		p.Chunk = e.window(s.D, s.Chunk)
	case p.Form == contract.Linear:
		p.Chunk = chunk
	}
	form := p.Form
	if s.Form == contract.Step && !e.Spec.Exp {
		form = contract.Step
	}
	p.Bound = e.Bound(s, form, p.Chunk, p.F)
	p.State, p.Renews = e.StateBytes(s), e.canFuseSteps(&s)
	var z T
	p.Bytes = float64(unsafe.Sizeof(z)) * e.Forms().CountScratch(p.Form, s.M, s.H/max(s.Hkv, 1), s.D, s.Dv, chunk)
	return p
}

// reason is choose with the cost of a key head and the reason.
func (e formChoice[T]) reason(c *contract.Call[T], s *SequenceTask, back bool) (form contract.Form, cost float64, why string) {
	form = e.choose(c, s, back)
	direct, linear := e.CountCosts(c, s, back)
	cost, why = e.Explain(c, form, direct, linear)
	return form, cost, why
}

// Explain returns the cost of a form that was chosen by the costs of both, and the
// reason.
func (e formChoice[T]) Explain(c *contract.Call[T], form contract.Form, direct, linear float64) (cost float64, why string) {
	cost = direct
	if form == contract.Linear {
		cost = linear
	}
	switch {
	case e.Spec.Exp:
		why = "the exponential has no moments to sum"
	case e.Spec.IsPairwise():
		why = "a similarity has no moments to sum"
	case c.Form == contract.Direct || c.Form == contract.Linear:
		why = "it was asked for"
	case e.Checks().checkMoments(c.Q.D, c.V.D) != nil:
		why = "the linear form has more sums than are allowed"
	case form == contract.Linear:
		why = fmt.Sprintf("the direct form takes %.3g times as long", direct/linear)
	default:
		why = fmt.Sprintf("the linear form takes %.3g times as long", linear/direct)
	}
	return cost, why
}
