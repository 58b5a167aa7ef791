package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

var local = Row{
	Name:   "local",
	Family: Sparse,
	Doc:    "softmax over a window of keys around the query",
	Source: "form=window: fast-transformers' LocalAttention; form=block: lucidrains/local-attention",
	Traits: "positive weights; cost in proportion to the window; a state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"window", "128", "w: a query sees keys -⌊w/2⌋ ≤ j-i < ⌈w/2⌉, of which a causal one has the left half; with form=block the tokens of a block"},
		{"span", "0", "w, instead of window: a query at place p = i+M-N sees the near field of a mechanism with window=w: keys |p-j| < w, of which a causal one has j ≤ p"},
		{"form", "window", "window, or block: a query sees whole blocks around its own"},
		{"back", "1", "form=block: blocks seen before its own"},
		{"forward", "1", "form=block: blocks seen after its own; a causal query sees none"},
		{"exact", "false", "form=block: true: no further than back or forward times the window"},
		softmaxScaleSetting,
	},
	f32: headwiseBuilder(newLocal[float32]),
	f64: headwiseBuilder(newLocal[float64]),
}

func newLocal[T tensor.Float](r *reader) (headwise.Function[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	w, err := r.Integer("window", 1, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	form, err := r.Choice("form", "window", "block")
	if err != nil {
		return nil, err
	}
	back, err := r.Integer("back", 0, maxSettingTokens/w)
	if err != nil {
		return nil, err
	}
	forward, err := r.Integer("forward", 0, maxSettingTokens/w)
	if err != nil {
		return nil, err
	}
	exact, err := r.Bool("exact")
	if err != nil {
		return nil, err
	}
	span, err := r.Integer("span", 0, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	p := &sparseSoftmax[T]{name: r.row.Name, softmax: &headwise.PatternSoftmax[T]{Scale: scale}, period: 1}
	if span > 0 {
		if _, given := r.o.Set["window"]; given || form == "block" {
			return nil, fmt.Errorf("%s: settings window=%d form=%s and span=%d: needs either a window or a span", r.row.Name, w, form, span)
		}
		p.setting = fmt.Sprintf("local span=%d scale=%s", span, formatScale(scale))
		p.rule, p.window, p.softmax.IsWindow = nearField(span), span, true
		return p, nil
	}
	if form == "window" {
		p.setting = fmt.Sprintf("local window=%d scale=%s", w, formatScale(scale))
		p.rule, p.window, p.softmax.IsWindow = &slidingWindow{w / 2, (w+1)/2 - 1}, w/2+1, true
		return p, nil
	}
	p.setting = fmt.Sprintf("local form=block window=%d back=%d forward=%d exact=%t scale=%s", w, back, forward, exact, formatScale(scale))
	p.rule, p.window, p.period = &blockWindow{w, back, forward, exact}, (back+1)*w, w
	if exact {
		p.window, p.period = back*w+1, 1
	}
	return p, nil
}

// slidingWindow is the rule of a window: a query sees at most tokensBefore tokens
// before it and tokensAfter tokens after it.
type slidingWindow struct{ tokensBefore, tokensAfter int }

func (b *slidingWindow) addPairs(p *headwise.Pattern, s headGeometry) {
	right := b.tokensAfter
	if s.causal {
		right = 0
	}
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		at := s.offset + i
		lo[i], hi[i] = int32(at-b.tokensBefore), int32(min(at+right+1, s.m))
	}
}

// nearField is the rule of a span of w tokens: the keys that a mechanism with a window
// of w tokens weighs exactly.
type nearField int

func (w nearField) addPairs(p *headwise.Pattern, s headGeometry) {
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		at := s.shift + i
		end := at + int(w)
		if s.causal {
			end = at + 1
		}
		lo[i], hi[i] = int32(max(at-int(w)+1, 0)), int32(max(min(end, s.m), 0))
	}
}

// blockWindow is the rule of blocks: a query sees whole blocks of w tokens around its
// own.
type blockWindow struct {
	w, blocksBefore, blocksAfter int
	exactDistance                bool
}

func (b *blockWindow) addPairs(p *headwise.Pattern, s headGeometry) {
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		at := s.offset + i
		own := at / b.w * b.w
		from, end := own-b.blocksBefore*b.w, own+(b.blocksAfter+1)*b.w
		if b.exactDistance {
			from, end = max(from, at-b.blocksBefore*b.w), min(end, at+b.blocksAfter*b.w+1)
		}
		if s.causal {
			end = at + 1
		}
		lo[i], hi[i] = int32(from), int32(min(end, s.m))
	}
}
