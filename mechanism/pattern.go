package mechanism

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// sparseSoftmax is softmax over the keys that a rule makes visible to a query by its
// position.
type sparseSoftmax[T tensor.Float] struct {
	name, setting string
	rule          visibilityRule
	softmax       *headwise.PatternSoftmax[T]
	// window is the largest number of keys up to its own that a causal query sees,
	// and period the shift of positions that changes no result; 0: no bound.
	window, period int
}

// visibilityRule adds the pairs of queries and keys of a head that see each other.
type visibilityRule interface {
	addPairs(p *headwise.Pattern, s headGeometry)
}

// headGeometry describes n queries and m keys of a head. The first query has the
// position of key offset, and in a near field the place of key shift.
type headGeometry struct {
	n, m, offset, shift, head int
	causal                    bool
}

func (p *sparseSoftmax[T]) Traits() attention.Traits {
	_, dilated := p.rule.(dilations)
	return attention.Traits{Name: p.name, Positive: true, Causal: true, Streaming: p.window > 0, PlacedQueries: true, PlacedHeads: dilated}
}

func (p *sparseSoftmax[T]) Setting() string                      { return p.setting }
func (p *sparseSoftmax[T]) Params() *param.Set[T]                { return nil }
func (p *sparseSoftmax[T]) Constants() *param.Set[T]             { return nil }
func (p *sparseSoftmax[T]) Check(*attention.Call[T]) error       { return nil }
func (p *sparseSoftmax[T]) Reach() (keys, period int)            { return p.window, p.period }
func (p *sparseSoftmax[T]) Cost(s attention.Shape) headwise.Cost { return pairsCost[T](p.rule, s) }

// TakesStridedRows reports whether values and outputs may lie apart: windows copy what they need.
func (p *sparseSoftmax[T]) TakesStridedRows() bool { return p.softmax.IsWindow }

// pairsCost returns the cost of the pairs of one head.
func pairsCost[T tensor.Float](sees visibilityRule, s attention.Shape) headwise.Cost {
	x := headGeometry{n: s.N, m: s.M, shift: s.M - s.N, causal: s.Causal}
	if s.Causal {
		x.offset = max(s.M-s.N, 0)
		x.n, x.shift = min(s.N, s.M), x.offset
	}
	p := headwise.NewPattern()
	defer p.Release()
	sees.addPairs(p, x)
	const tile = 64 * 128
	return headwise.Cost{
		FLOPs: 2 * float64(p.CountPairs()) * float64(s.D+s.Dv+3),
		Bytes: elementBytes[T]()*float64(3*s.N+tile+2*128*(s.D+s.Dv)) + 8*float64(p.CountBounds()),
	}
}

// visiblePairs returns the pairs of a head that see each other. The caller releases
// them.
func visiblePairs[T tensor.Float](sees visibilityRule, h *headwise.Head[T]) *headwise.Pattern {
	p := headwise.NewPattern()
	sees.addPairs(p, headGeometry{n: h.Q.Rows, m: h.K.Rows, offset: h.Offset, shift: h.Shift, head: h.Head, causal: h.Causal})
	return p
}

func (p *sparseSoftmax[T]) Forward(h *headwise.Head[T]) {
	pairs := visiblePairs(p.rule, h)
	defer pairs.Release()
	p.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), pairs)
}

func (p *sparseSoftmax[T]) Backward(h *headwise.Head[T], g *headwise.Grads[T]) {
	pairs := visiblePairs(p.rule, h)
	defer pairs.Release()
	g.Clear()
	p.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
}

// softmaxScaleSetting is the setting of rows with softmax weights.
var softmaxScaleSetting = Setting{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"}

// softmaxScale returns the factor of scores, 0 for 1/√D.
func (r *reader) softmaxScale() (float64, error) {
	return r.Positive(softmaxScaleSetting.Name, "1/sqrt(D)")
}

// maxSettingTokens is the largest number of tokens that settings accept.
const maxSettingTokens = 1 << 30
