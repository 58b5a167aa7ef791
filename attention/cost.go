package attention

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/attention/internal/band"
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// chunk returns the tokens of a chunk for width d: the caller's wish, or 64 to
// 256 as the features of a token outnumber the keys of a chunk.
func (e formChoice[T]) chunk(d, wish int) int {
	switch {
	case wish > 0:
		return wish
	case e.spec.Degree() == 1:
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
func (e formChoice[T]) choose(c *Call[T], s *sequenceTask, back bool) Form {
	if e.spec.IsPairwise() || c.AttnKeep != nil || c.Form == Direct {
		return Direct
	}
	if c.Form == Linear {
		return Linear
	}
	direct, linear := e.costs(c, s, back)
	return e.cheaper(c, direct, linear)
}

// cheaper returns the form that costs less, if its moments may be kept.
func (e formChoice[T]) cheaper(c *Call[T], direct, linear float64) Form {
	if linear < direct && e.checks().checkMoments(c.Q.D, c.V.D) == nil {
		return Linear
	}
	return Direct
}

// countFLOPs is the arithmetic of Forward for one sequence, all heads.
func (e formChoice[T]) countFLOPs(c *Call[T], s *sequenceTask) float64 {
	d, l := e.countOperations(s.N, s.M, c.Q.D, c.V.D, c.Causal, e.chunk(c.Q.D, c.Chunk))
	if s.form == Direct {
		return d * float64(c.Q.H)
	}
	// Heads that share a key head share its moments.
	return l*float64(c.Q.H) - e.countSumOperations(s.M, c.Q.D, c.V.D)*float64(c.Q.H-c.K.H)
}

// countOperations returns the floating-point operations of one head in both forms, for n
// queries and m keys: 2 per fused multiply-add.
func (e formChoice[T]) countOperations(n, m, d, dv int, causal bool, chunk int) (direct, linear float64) {
	w := float64(e.spec.Width(d))
	pairs := float64(n) * float64(m)
	switch {
	case e.spec.WindowWidth > 0:
		pairs = float64(n) * float64(min(e.spec.WindowWidth, m))
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
	return 2 * float64(e.spec.CountFeatures(e.spec.Width(d))) * float64(n) * (float64(dv) + 1.5)
}

// scratch is the number of elements that a key head takes in Forward, as the
// engines ask for them: in the direct form its prepared keys, its values and a
// block of queries with their outputs and weights; in the linear form the
// moments, the open chunk, and a block of features.
func (e formChoice[T]) scratch(form Form, m, group, d, dv, chunk int) float64 {
	w, v := e.spec.Width(d), kernel.Pad(dv)
	if e.spec.WindowWidth > 0 {
		nk := min(e.spec.WindowWidth+headtask.QueryBlock-1, m)
		rows := band.TileRows(w)
		tile := rows * (kernel.Pad(min(e.spec.WindowWidth+rows, m)) + kernel.Lanes + v)
		return float64(w*scratch.Stride[T](nk) + nk*scratch.Stride[T](dv) + headtask.QueryBlock*(scratch.Stride[T](w)+5) + tile)
	}
	if form == Direct {
		keys := math.Ceil(float64(m)/headtask.KeyBlock) * float64(w*scratch.Stride[T](min(m, headtask.KeyBlock)))
		rows := group * (w*scratch.Stride[T](headtask.QueryBlock) + headtask.QueryBlock*(scratch.Stride[T](dv)+2))
		return keys + float64(m)*float64(scratch.Stride[T](dv)) + float64(rows+min(headtask.QueryBlock, headtask.MaxRows(m))*scratch.Stride[T](min(m, headtask.KeyBlock)))
	}
	f := float64(e.spec.CountFeatures(w))
	ld := scratch.Stride[T](chunk)
	return f*float64(v+1) + float64(2*(w+1)*ld+2*chunk*v+min(features.BlockSize, int(f))*ld+chunk*(w+1)+min(chunk, headtask.MaxRows(chunk))*ld)
}

// Plan tells what Forward and Backward do for a shape.
func (e *engine[T]) Plan(s Shape) Plan {
	c := &Call[T]{Causal: s.Causal, Form: s.Form, Chunk: s.Chunk}
	c.Q.H, c.Q.N, c.Q.D = s.H, s.N, s.D
	c.K.H, c.K.N, c.V.D = s.Hkv, s.M, s.Dv
	seq := &sequenceTask{Sequence: Sequence{N: s.N, M: s.M, Keys: s.M, Offset: s.M - s.N}}
	p := Plan{F: e.spec.CountFeatures(e.spec.Width(s.D)), WidthError: e.checks().checkMoments(s.D, s.Dv)}
	all := float64(s.B * s.Hkv)
	p.Back, p.BackCost, p.BackWhy = e.forms().reason(c, seq, true)
	p.Form, p.Cost, p.Reason = e.forms().reason(c, seq, false)
	p.Cost, p.BackCost = all*p.Cost, all*p.BackCost
	seq.form = p.Form
	p.FLOPs = e.forms().countFLOPs(c, seq) * float64(s.B)
	chunk := e.forms().chunk(s.D, s.Chunk)
	switch {
	case e.spec.IsPairwise():
	case s.Form == Step:
		p.Chunk = e.window(s.D, s.Chunk)
	case p.Form == Linear:
		p.Chunk = chunk
	}
	form := p.Form
	if s.Form == Step && !e.spec.Exp {
		form = Step
	}
	p.Bound = e.bound(s, form, p.Chunk, p.F)
	p.State, p.Renews = e.stateBytes(s), e.canFuseSteps(&s)
	var z T
	p.Bytes = float64(unsafe.Sizeof(z)) * e.forms().scratch(p.Form, s.M, s.H/max(s.Hkv, 1), s.D, s.Dv, chunk)
	return p
}

// reason is choose with the cost of a key head and the reason.
func (e formChoice[T]) reason(c *Call[T], s *sequenceTask, back bool) (form Form, cost float64, why string) {
	form = e.choose(c, s, back)
	direct, linear := e.costs(c, s, back)
	cost, why = e.explain(c, form, direct, linear)
	return form, cost, why
}

// explain returns the cost of a form that was chosen by the costs of both, and the
// reason.
func (e formChoice[T]) explain(c *Call[T], form Form, direct, linear float64) (cost float64, why string) {
	cost = direct
	if form == Linear {
		cost = linear
	}
	switch {
	case e.spec.Exp:
		why = "the exponential has no moments to sum"
	case e.spec.IsPairwise():
		why = "a similarity has no moments to sum"
	case c.Form == Direct || c.Form == Linear:
		why = "it was asked for"
	case e.checks().checkMoments(c.Q.D, c.V.D) != nil:
		why = "the linear form has more sums than are allowed"
	case form == Linear:
		why = fmt.Sprintf("the direct form takes %.3g times as long", direct/linear)
	default:
		why = fmt.Sprintf("the linear form takes %.3g times as long", linear/direct)
	}
	return cost, why
}
