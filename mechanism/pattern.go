package mechanism

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// sparseSoftmax is softmax over the keys that a rule makes visible to a query by its
// position.
type sparseSoftmax[T tensor.Float] struct {
	name, setting string
	rule          visibilityRule
	softmax       *attention.PairSoftmax[T]
	// window is the largest number of keys up to its own that a causal query sees,
	// and period the shift of positions that changes no result; 0: no bound.
	window, period int
}

// visibilityRule adds the pairs of queries and keys of a head that see each other.
type visibilityRule interface {
	addPairs(p *attention.Pairs, s *headGeometry)
}

// headGeometry describes n queries and m keys of a head. The first query has the
// position of key offset.
type headGeometry struct {
	n, m, offset, head int
	causal             bool
}

func (p *sparseSoftmax[T]) Traits() attention.Traits {
	return attention.Traits{Name: p.name, Positive: true, Causal: true, Streaming: p.window > 0}
}

func (p *sparseSoftmax[T]) Setting() string                       { return p.setting }
func (p *sparseSoftmax[T]) Params() *param.Set[T]                 { return nil }
func (p *sparseSoftmax[T]) Constants() *param.Set[T]              { return nil }
func (p *sparseSoftmax[T]) Check(*attention.Call[T]) error        { return nil }
func (p *sparseSoftmax[T]) Window() (keys, period int)            { return p.window, p.period }
func (p *sparseSoftmax[T]) Cost(s attention.Shape) attention.Cost { return pairsCost[T](p.rule, s) }

// pairsCost returns the cost of the pairs of one head.
func pairsCost[T tensor.Float](sees visibilityRule, s attention.Shape) attention.Cost {
	x := headGeometry{n: s.N, m: s.M, causal: s.Causal}
	if s.Causal {
		x.offset = max(s.M-s.N, 0)
		x.n = min(s.N, s.M)
	}
	p := attention.NewPairs()
	defer p.Release()
	sees.addPairs(p, &x)
	const tile = 64 * 128
	return attention.Cost{
		FLOPs: 2 * float64(p.Count()) * float64(s.D+s.Dv+3),
		Bytes: elementBytes[T]()*float64(3*s.N+tile+2*128*(s.D+s.Dv)) + 8*float64(p.Bounds()),
	}
}

// visiblePairs returns the pairs of a head that see each other. The caller releases
// them.
func visiblePairs[T tensor.Float](sees visibilityRule, h *attention.Head[T]) *attention.Pairs {
	p := attention.NewPairs()
	sees.addPairs(p, &headGeometry{n: h.Q.Rows, m: h.K.Rows, offset: h.Off, head: h.Head, causal: h.Causal})
	return p
}

func (p *sparseSoftmax[T]) Forward(h *attention.Head[T]) {
	pairs := visiblePairs(p.rule, h)
	defer pairs.Release()
	p.softmax.Forward(h, h.Save(h.Q.Rows), pairs)
}

func (p *sparseSoftmax[T]) Backward(h *attention.Head[T], g *attention.HeadGrads[T]) {
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
