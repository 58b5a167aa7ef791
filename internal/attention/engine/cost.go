package engine

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/band"
	"github.com/farfield-ml/farfield/internal/attention/costmodel"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// Chunk returns the number of tokens of a chunk for rows of width d: wish if that is above 0,
// otherwise 64 to 256, more for wider rows.
func (e *Engine) Chunk(d, wish int) int {
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

// choose returns the form with the lower predicted cost for sequence s, forward or backward. It
// depends only on the mechanism, the instruction set and the shape of the sequence. If it
// depended on threads, batch, padding or whether gradients are wanted, these would change the
// bits of results.
func (e *Engine) choose(c *attention.Call, s *SequenceTask, back bool) attention.Form {
	if e.Spec.IsPairwise() || c.AttnKeep != nil || c.Form == attention.Direct {
		return attention.Direct
	}
	if c.Form == attention.Linear {
		return attention.Linear
	}
	direct, linear := e.CountCosts(c, s, back)
	return e.ChooseCheaper(c, direct, linear)
}

// ChooseCheaper returns the form with the lower cost. The linear form is possible only if its
// moments are within the limits.
func (e *Engine) ChooseCheaper(c *attention.Call, direct, linear float64) attention.Form {
	if linear < direct && e.checkMoments(c.Q.D, c.V.D) == nil {
		return attention.Linear
	}
	return attention.Direct
}

// CountFLOPs returns the floating-point operations of Forward for one sequence, all heads.
func (e *Engine) CountFLOPs(c *attention.Call, s *SequenceTask) float64 {
	d, l := e.CountOperations(s.N, s.M, s.Offset, c.Q.D, c.V.D, c.Causal, e.Chunk(c.Q.D, c.Chunk))
	if s.Form == attention.Direct {
		return d * float64(c.Q.H)
	}
	// Heads that share a key head share its moments.
	return l*float64(c.Q.H) - e.countSumOperations(s.M, c.Q.D, c.V.D)*float64(c.Q.H-c.K.H)
}

// CountOperations returns the floating-point operations of one head in both forms, for n
// queries and m keys. In a causal call query i sees keys j ≤ i+offset. A fused multiply-add
// counts as 2.
func (e *Engine) CountOperations(n, m, offset, d, dv int, causal bool, chunk int) (direct, linear float64) {
	w := float64(e.Spec.Width(d))
	pairs := float64(n) * float64(m)
	switch width := e.Spec.WindowWidth; {
	case width > 0:
		if e.Spec.IsSymmetric {
			offset += width / 2
		}
		pairs = visiblePairs(n, m, offset) - visiblePairs(n, m, offset-width)
	case causal:
		pairs = visiblePairs(n, m, offset)
	}
	direct = 2 * pairs * (w + float64(dv) + 3)
	linear = e.countSumOperations(m, d, dv) + e.countSumOperations(n, d, dv)
	if causal {
		linear += float64(min(n, m)) * float64(chunk) * (w + float64(dv) + 3)
	}
	return direct, linear
}

// visiblePairs returns the number of pairs of n queries and m keys where query i sees keys
// j ≤ i+offset.
func visiblePairs(n, m, offset int) float64 {
	return costmodel.CausalPairs(n+offset, m) - costmodel.CausalPairs(offset, m)
}

// countSumOperations is the arithmetic of bringing n tokens of one head and its moments
// together: per feature one product to make it, and multiply-adds with the
// values and the ones.
func (e *Engine) countSumOperations(n, d, dv int) float64 {
	return 2 * float64(e.Spec.CountFeatures(e.Spec.Width(d))) * float64(n) * (float64(dv) + 1.5)
}

// CountScratch returns the number of scratch elements that Forward takes for a key head. In the
// direct form these are the prepared keys, the values, and a block of queries with its outputs
// and weights; in the linear form the moments, the open chunk and a block of features.
func (e *Engine) CountScratch(form attention.Form, m, group, d, dv, chunk int) float64 {
	w, v := e.Spec.Width(d), kernel.Pad(dv)
	if e.Spec.WindowWidth > 0 {
		nk := min(e.Spec.WindowWidth+headtask.QueryBlock-1, m)
		rows := band.TileRows(w)
		tile := rows * (kernel.Pad(min(e.Spec.WindowWidth+rows, m)) + kernel.Lanes + v)
		return float64(w*scratch.Stride[float](nk) + nk*scratch.Stride[float](dv) + headtask.QueryBlock*(scratch.Stride[float](w)+5) + tile)
	}
	if form == attention.Direct {
		keys := math.Ceil(float64(m)/headtask.KeyBlock) * float64(w*scratch.Stride[float](min(m, headtask.KeyBlock)))
		rows := group * (w*scratch.Stride[float](headtask.QueryBlock) + headtask.QueryBlock*(scratch.Stride[float](dv)+2))
		return keys + float64(m)*float64(scratch.Stride[float](dv)) + float64(rows+min(headtask.QueryBlock, headtask.MaxRows(m))*scratch.Stride[float](min(m, headtask.KeyBlock)))
	}
	f := float64(e.Spec.CountFeatures(w))
	ld := scratch.Stride[float](chunk)
	return f*float64(v+1) + float64(2*(w+1)*ld+2*chunk*v+min(features.BlockSize, int(f))*ld+chunk*(w+1)+min(chunk, headtask.MaxRows(chunk))*ld)
}

// Plan returns what Forward and Backward do for a shape, and the cost.
func (e *Engine) Plan(s attention.Shape) attention.Plan {
	c := &attention.Call{Causal: s.Causal, Form: s.Form, Chunk: s.Chunk}
	c.Q.H, c.Q.N, c.Q.D = s.H, s.N, s.D
	c.K.H, c.K.N, c.V.D = s.Hkv, s.M, s.Dv
	lag := e.Spec.FarLag
	seq := &SequenceTask{Sequence: attention.Sequence{N: s.N, M: max(s.M-lag, 0), Keys: s.M, Offset: s.M - s.N - lag}}
	p := attention.Plan{F: e.Spec.CountFeatures(e.Spec.Width(s.D)), WidthError: e.checkMoments(s.D, s.Dv)}
	all := float64(s.B * s.Hkv)
	p.Back, p.BackCost, p.BackWhy = e.reason(c, seq, true)
	p.Form, p.Cost, p.Reason = e.reason(c, seq, false)
	p.Cost, p.BackCost = all*p.Cost, all*p.BackCost
	seq.Form = p.Form
	p.FLOPs = e.CountFLOPs(c, seq) * float64(s.B)
	chunk := e.Chunk(s.D, s.Chunk)
	switch {
	case e.Spec.IsPairwise():
	case s.Form == attention.Step:
		p.Chunk = e.window(s.D, s.Chunk)
	case p.Form == attention.Linear:
		p.Chunk = chunk
	}
	form := p.Form
	if s.Form == attention.Step && !e.Spec.Exp {
		form = attention.Step
	}
	p.Bound = e.Bound(s, form, p.Chunk, p.F)
	p.State, p.Renews = e.StateBytes(s), e.canFuseSteps(&s)
	var z float
	p.Bytes = float64(unsafe.Sizeof(z)) * e.CountScratch(p.Form, s.M, s.H/max(s.Hkv, 1), s.D, s.Dv, chunk)
	return p
}

// reason is choose with the cost of a key head and the reason.
func (e *Engine) reason(c *attention.Call, s *SequenceTask, back bool) (form attention.Form, cost float64, why string) {
	form = e.choose(c, s, back)
	direct, linear := e.CountCosts(c, s, back)
	cost, why = e.Explain(c, form, direct, linear)
	return form, cost, why
}

// Explain returns the cost of form, which was chosen by comparing direct and linear, and the
// reason for the choice.
func (e *Engine) Explain(c *attention.Call, form attention.Form, direct, linear float64) (cost float64, why string) {
	cost = direct
	if form == attention.Linear {
		cost = linear
	}
	switch {
	case e.Spec.Exp:
		why = "the exponential has no moments to sum"
	case e.Spec.IsPairwise():
		why = "a similarity has no moments to sum"
	case c.Form == attention.Direct || c.Form == attention.Linear:
		why = "it was asked for"
	case e.checkMoments(c.Q.D, c.V.D) != nil:
		why = "the linear form has more sums than are allowed"
	case direct == 0 && linear == 0:
		why = "there is nothing to compute"
	case form == attention.Linear:
		why = fmt.Sprintf("the direct form takes %.3g times as long", direct/linear)
	default:
		why = fmt.Sprintf("the linear form takes %.3g times as long", linear/direct)
	}
	return cost, why
}

// costKernel returns the kernel whose speeds s has.
func costKernel(s *headtask.Spec) costmodel.Kernel {
	switch {
	case s.IsPairwise():
		return costmodel.Softmax
	case s.HasMap():
		return costmodel.Mapped
	case s.Degree() == 1:
		return costmodel.Degree1
	case s.Degree() == 2:
		return costmodel.Degree2
	}
	return costmodel.Degree3
}

// Tally counts the work on sequence s, forward or backward. It leaves out keys beyond the key
// length.
func (e *Engine) Tally(c *attention.Call, s *SequenceTask, back bool) costmodel.Tally {
	n := s.N
	if c.Causal {
		n = max(n-max(s.Keys-e.Spec.FarLag-s.M, 0), 0)
	}
	width := e.Spec.Width(c.Q.D)
	w, dv, v := float64(width), float64(c.V.D), float64(kernel.Pad(c.V.D))
	group := float64(c.Q.H / max(c.K.H, 1))
	chunk := min(e.Chunk(c.Q.D, c.Chunk), max(n, s.M, 1))

	// A pair takes the products of its score, the product of its weight with the value, and the
	// weight itself. A feature of a token is computed and multiplied with values and a sum.
	pair := w + v + 3
	key, query := v+1.5, v+1.5
	if back {
		// The score again and the gradients of weight, query, key and value.
		pair = w + dv + 2*float64(kernel.Pad(width)) + v + 8
		// Keys are added to their moments, unless Forward has saved those, and read the moments
		// of queries in two products. Queries read the moments of keys and are added to their
		// own.
		key, query = v+1.5+dv+3.5, v+1.5+dv+3.5
		if c.Causal || e.choose(c, s, false) != attention.Linear {
			key += v + 1.5
		}
	}
	pair *= 2 * group
	x := costmodel.Tally{Tokens: float64(s.M) + group*float64(n), Causal: c.Causal}
	closed, late := s.M, n // keys that are added to the moments, queries that read them
	if e.Spec.WindowWidth > 0 {
		// A tile of queries computes the pairs with the keys of all their bands.
		x.Pairs = pair * float64(n) * float64(min(e.Spec.WindowWidth+min(n, band.TileRows(c.Q.D))-1, s.M))
	} else if c.Causal {
		// A panel sees what its last query sees.
		beyond := float64(min(n, headtask.PanelRows)-1) / 2 * float64(n)
		x.Pairs = pair * (visiblePairs(n, s.M, s.Offset) + beyond)
		x.Open = pair * (costmodel.ChunkPairs(n+s.Offset, chunk) - costmodel.ChunkPairs(s.Offset, chunk) + beyond)
		closed = min(s.M, max(n+s.Offset-1, 0)/chunk*chunk)
		late = n - min(max(chunk-s.Offset, 0), n)
	} else {
		x.Pairs = pair * float64(n) * float64(s.M)
	}
	features := e.Spec.CountFeatures(e.Spec.FeatureWidth(c.Q.D, c.Rope != nil))
	x.Moments = 2 * float64(features) * (key*float64(closed) + group*query*float64(late))
	return x
}

// CountCosts returns the costs of a key head with its query heads in both forms, in the unit of
// Plan.Cost.
func (e *Engine) CountCosts(c *attention.Call, s *SequenceTask, back bool) (direct, linear float64) {
	x, v := e.Tally(c, s, back), e.speeds.Interpolate(costKernel(&e.Spec), c.Q.D, c.Causal, back)
	return x.DirectCost(v), x.LinearCost(v)
}

// CountTwoSidedCosts is CountCosts for a far field on both sides of a window. It has the keys
// of two causal sequences, but in the linear form keys are summed, and sums are read, only
// once.
func (e *Engine) CountTwoSidedCosts(c *attention.Call, sides [2]SequenceTask, back bool) (direct, linear float64) {
	v := e.speeds.Interpolate(costKernel(&e.Spec), c.Q.D, true, back)
	for i := range sides {
		sides[i].Keys = sides[i].M // all queries count
	}
	x, y := e.Tally(c, &sides[0], back), e.Tally(c, &sides[1], back)
	direct = x.DirectCost(v) + y.DirectCost(v)
	x.Tokens, x.Pairs, x.Open, x.Moments = x.Tokens+y.Tokens, x.Pairs+y.Pairs, x.Open+y.Open, max(x.Moments, y.Moments)
	return direct, x.LinearCost(v)
}

// CountTwoSidedFLOPs is CountFLOPs for a far field on both sides of a window.
func (e *Engine) CountTwoSidedFLOPs(c *attention.Call, sides [2]SequenceTask) float64 {
	flops := e.CountFLOPs(c, &sides[0]) + e.CountFLOPs(c, &sides[1])
	if sides[0].Form == attention.Linear {
		fewer := min(sides[0].M, sides[1].M)
		flops -= e.countSumOperations(fewer, c.Q.D, c.V.D)*float64(c.K.H) + e.countSumOperations(sides[0].N, c.Q.D, c.V.D)*float64(c.Q.H)
	}
	return flops
}

// AccumulatedRounding returns γ_n = n·u/(1-n·u), the largest relative error of n roundings in a
// row (Higham 2002, Accuracy and Stability of Numerical Algorithms, lemma 3.1). It is +Inf if
// n·u ≥ 1.
func AccumulatedRounding(n, u float64) float64 {
	if n*u >= 1 {
		return math.Inf(1)
	}
	return n * u / (1 - n*u)
}

// Rounding returns u, the largest relative error of one rounding to the element type.
func Rounding() float64 {
	var z float
	if unsafe.Sizeof(z) == 8 {
		return math.Ldexp(1, -53)
	}
	return math.Ldexp(1, -24)
}

// Bound returns Plan.Bound of a form. docs/numerics.md derives it.
func (e *Engine) Bound(s attention.Shape, form attention.Form, chunk, features int) float64 {
	u := Rounding()
	d, m := float64(e.Spec.Width(s.D)), float64(s.M)
	if e.Spec.WindowWidth > 0 {
		m = min(m, float64(e.Spec.WindowWidth))
	}
	rows, known := e.rowError(s.D, u)
	if !known || e.Spec.Unnormalized || e.Spec.OutputNorm || e.Spec.Similarity != nil {
		return 0
	}
	if e.Spec.Exp {
		return 4. / 3 * (AccumulatedRounding(d+m+32, u) + 2*rows)
	}
	p := float64(e.Spec.Degree())
	sum := m
	if form != attention.Direct {
		c := max(min(float64(chunk), m), 1)
		sum = float64(features) + c + carried(math.Ceil(m/c), s.Carry, u)
		if e.Spec.FeatureWidth(s.D, false) < e.Spec.Width(s.D) {
			// Reflected rows: an addition a channel, of the last one times 1/(√D-1).
			tilt := math.Sqrt(d) / (math.Sqrt(d) - 1)
			rows = (1 + tilt) * (rows + AccumulatedRounding(3, u))
		}
	}
	// A score errs by the rows and by its own sum, p of them make a term, and the
	// term goes through the polynomial or the products of its features, and sums.
	score := (1 + rows) * (1 + rows) * (1 + AccumulatedRounding(d, u))
	term := math.Pow(score, p)*(1+AccumulatedRounding(sum+2*p+16, u)) - 1
	return 4. / 3 * term
}

// carried returns the number of roundings of a sum to which the given number of chunks
// are added. A compensated sum is rounded when it is read; its loss until then is at
// most 2u² of the sizes of its terms a chunk.
func carried(chunks float64, c attention.Carry, u float64) float64 {
	if c == attention.Compensated {
		return 1 + math.Ceil(2*u*chunks)
	}
	return chunks
}

// rowError bounds the error of a prepared row's 2-norm in parts of the row's, for
// rows of width d; it is not known for all normalisations and feature maps.
func (e *Engine) rowError(d int, u float64) (err float64, known bool) {
	w := float64(d)
	err = AccumulatedRounding(3, u) // scale and temperature
	switch e.Spec.Norm {
	case attention.NoNorm:
	case attention.Unit:
		err += AccumulatedRounding(w/8+8, u)
	case attention.Standard, attention.Bounded:
		centre := AccumulatedRounding(w+2*math.Sqrt(w)+8, u)
		err += centre/(1-centre/2) + AccumulatedRounding(w/8+8, u)
	default:
		return 0, false
	}
	if e.Spec.HasMap() {
		// What a map does to an error is its own affair.
		r, ok := e.Spec.Map.(attention.BoundedRounding)
		if !ok || e.Spec.Norm != attention.NoNorm || e.Spec.Scale != 1 || e.Spec.Tau != nil {
			return 0, false
		}
		err = AccumulatedRounding(r.Roundings(), u)
	}
	return err + AccumulatedRounding(5, u), true // rotation
}

// canFuseSteps reports whether states of shape s can answer and absorb a token in one pass, if
// their chunks have one token.
func (e *Engine) canFuseSteps(s *attention.Shape) bool {
	spec := &e.Spec
	return !spec.IsPairwise() && spec.IsDegree1() && spec.BuiltinDecay == nil &&
		s.H == s.Hkv && s.Carry == attention.Rounded && spec.CountFeatures(spec.Width(s.D)) <= features.BlockSize
}

// window returns the number of tokens of a chunk of a state, for rows of width d. Every step
// reads the moments, but only the last step of a chunk writes them, so a few tokens per chunk
// are enough to make writing cheap; more tokens would only add pairs to compute. Moments of
// degree 1 are no larger than the keys and values of D/2 tokens and cheap to write, so their
// chunks are short.
func (e *Engine) window(d, wish int) int {
	switch {
	case wish > 0:
		return wish
	case e.Spec.Degree() == 1:
		return 16
	}
	return min(e.Chunk(d, 0), 96)
}

// StateBytes returns the size of an empty state of shape s, or 0 if it grows with the tokens.
func (e *Engine) StateBytes(s attention.Shape) float64 {
	if e.Spec.IsPairwise() || s.D < 1 || s.Dv < 1 {
		return 0
	}
	w := e.Spec.Width(s.D)
	c, features, ld := e.window(s.D, s.Chunk), float64(e.Spec.CountFeatures(w)), float64(kernel.Pad(s.Dv))
	sums := features*(ld+1) + float64(kernel.Lanes) - 1
	if s.Carry == attention.Compensated {
		sums *= 2
	}
	chunk := float64(w+1)*float64(scratch.Stride[float](c)) + float64(c)*ld
	heads, size := float64(s.B)*float64(s.Hkv), float64(scratch.ElementSize[float]())
	if heads == 0 {
		return 0
	}
	return heads*((sums+chunk)*size+float64(c)) + features*size // whose weights all heads share
}
