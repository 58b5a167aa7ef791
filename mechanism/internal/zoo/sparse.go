package zoo

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// This file has the rows whose queries see keys by their positions alone: a row reads its
// settings into a visibilityRule, and one softmax computes them all.

// sparsity holds what a row reads from its settings: which pairs of queries and keys see each other.
type sparsity struct {
	setting string // in its printed form, without the scale
	rule    visibilityRule
	// window and period are those of sparseSoftmax.
	window, period int
	isWindow       bool // the rule is one window of keys around each query
	cap            float64
}

// NewSparse returns the constructor of a row that reads its rule by read.
func NewSparse(read func(*entry.Reader) (sparsity, error)) func(*entry.Reader) (headwise.Function, error) {
	return func(r *entry.Reader) (headwise.Function, error) {
		scale, err := r.SoftmaxScale()
		if err != nil {
			return nil, err
		}
		s, err := read(r)
		if err != nil {
			return nil, err
		}
		p := &sparseSoftmax{
			name: r.Name, setting: fmt.Sprintf("%s %s scale=%s", r.Name, s.setting, entry.FormatScale(scale)),
			rule: s.rule, window: s.window, period: s.period,
			softmax: &headwise.PatternSoftmax{Scale: scale, Cap: s.cap, IsWindow: s.isWindow && s.cap == 0},
		}
		if s.cap > 0 {
			p.setting += fmt.Sprintf(" cap=%v", s.cap)
		}
		if d, ok := s.rule.(dilations); ok && d[0].heads > 0 {
			return &branchMixture{*p, d}, nil
		}
		return p, nil
	}
}

func ReadLocal(r *entry.Reader) (s sparsity, err error) {
	limit, err := r.ScoreCap()
	if err != nil {
		return s, err
	}
	s, err = readWindow(r)
	s.cap = limit
	return s, err
}

// readWindow reads the rule of local.
func readWindow(r *entry.Reader) (s sparsity, err error) {
	w, err := r.Integer("window", 1, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	form, err := r.Choice("form", "window", "block")
	if err != nil {
		return s, err
	}
	back, err := r.Integer("back", 0, entry.MaxSettingTokens/w)
	if err != nil {
		return s, err
	}
	forward, err := r.Integer("forward", 0, entry.MaxSettingTokens/w)
	if err != nil {
		return s, err
	}
	exact, err := r.Bool("exact")
	if err != nil {
		return s, err
	}
	span, err := r.Integer("span", 0, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	switch _, given := r.Set["window"]; {
	case span > 0 && (given || form == "block"):
		return s, fmt.Errorf("%s: settings window=%d form=%s and span=%d: needs either a window or a span", r.Name, w, form, span)
	case span > 0:
		return sparsity{setting: fmt.Sprintf("span=%d", span), rule: nearField(span), window: span, period: 1, isWindow: true}, nil
	case form == "window":
		return sparsity{setting: fmt.Sprintf("window=%d", w), rule: &slidingWindow{w / 2, (w+1)/2 - 1}, window: w/2 + 1, period: 1, isWindow: true}, nil
	}
	s = sparsity{
		setting: fmt.Sprintf("form=block window=%d back=%d forward=%d exact=%t", w, back, forward, exact),
		rule:    &blockWindow{w, back, forward, exact}, window: (back + 1) * w, period: w,
	}
	if exact {
		s.window, s.period = back*w+1, 1
	}
	return s, nil
}

func ReadLongformer(r *entry.Reader) (s sparsity, err error) {
	w, err := r.Integer("window", 1, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	sees := &globalWindow{radius: w / 2}
	if r.Text("global") != "none" {
		list, err := r.Integers("global", 0, entry.MaxSettingTokens)
		if err != nil {
			return s, err
		}
		slices.Sort(list)
		for _, g := range slices.Compact(list) {
			sees.globals = append(sees.globals, int32(g))
		}
	}
	return sparsity{setting: fmt.Sprintf("window=%d global=%d", w, sees.globals), rule: sees}, nil
}

func ReadLongNet(r *entry.Reader) (s sparsity, err error) {
	segments, err := r.Integers("segments", 1, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	ratios, err := r.Integers("ratios", 1, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	if len(segments) != len(ratios) {
		return s, fmt.Errorf("%s: setting ratios=%s: has %d numbers, segments has %d", r.Name, r.Text("ratios"), len(ratios), len(segments))
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return s, err
	}
	heads := 0
	if form == "code" {
		heads = max(r.Heads, 1)
	}
	var all dilations
	for b := range segments {
		all = append(all, dilation{segments[b], ratios[b], heads})
	}
	return sparsity{setting: fmt.Sprintf("segments=%d ratios=%d form=%s", segments, ratios, form), rule: all}, nil
}

func ReadStrided(r *entry.Reader) (s sparsity, err error) {
	stride, err := r.Integer("stride", 1, entry.MaxSettingTokens)
	return sparsity{setting: fmt.Sprintf("stride=%d", stride), rule: &stridedTokens{stride}}, err
}

func ReadFixed(r *entry.Reader) (s sparsity, err error) {
	stride, err := r.Integer("stride", 1, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	c, err := r.Integer("c", 0, entry.MaxSettingTokens)
	if err != nil {
		return s, err
	}
	if c > stride {
		return s, r.Refuse("c", fmt.Sprintf("no more than stride=%d", stride))
	}
	return sparsity{setting: fmt.Sprintf("stride=%d c=%d", stride, c), rule: &blockEnds{stride, c}}, nil
}

// sparseSoftmax is softmax over the keys that a rule makes visible to a query by its
// position.
type sparseSoftmax struct {
	name, setting string
	rule          visibilityRule
	softmax       *headwise.PatternSoftmax
	// window is the number of last keys that a causal query may see, its own included; 0: no
	// bound. A shift of all positions by a multiple of period changes no result.
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

func (p *sparseSoftmax) Traits() attention.Traits {
	_, dilated := p.rule.(dilations)
	return attention.Traits{Name: p.name, Positive: true, Causal: true, Streaming: p.window > 0, PlacedQueries: true, PlacedHeads: dilated}
}

func (p *sparseSoftmax) Setting() string                      { return p.setting }
func (p *sparseSoftmax) Params() *param.Set                   { return nil }
func (p *sparseSoftmax) Constants() *param.Set                { return nil }
func (p *sparseSoftmax) Check(*attention.Call) error          { return nil }
func (p *sparseSoftmax) Reach() (keys, period int)            { return p.window, p.period }
func (p *sparseSoftmax) Cost(s attention.Shape) headwise.Cost { return pairsCost(p.rule, s) }

// TakesStridedRows reports whether values and outputs may lie apart: windows copy what they need.
func (p *sparseSoftmax) TakesStridedRows() bool { return p.softmax.IsWindow }

// pairsCost returns the cost of the pairs of one head.
func pairsCost(sees visibilityRule, s attention.Shape) headwise.Cost {
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
		Bytes: entry.ElementBytes()*float64(3*s.N+tile+2*128*(s.D+s.Dv)) + 8*float64(p.CountBounds()),
	}
}

// visiblePairs returns the pairs of a head that see each other. The caller releases
// them.
func visiblePairs(sees visibilityRule, h *headwise.Head) *headwise.Pattern {
	p := headwise.NewPattern()
	sees.addPairs(p, headGeometry{n: h.Q.Rows, m: h.K.Rows, offset: h.Offset, shift: h.Shift, head: h.Head, causal: h.Causal})
	return p
}

func (p *sparseSoftmax) Forward(h *headwise.Head) {
	pairs := visiblePairs(p.rule, h)
	defer pairs.Release()
	p.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), pairs)
}

func (p *sparseSoftmax) Backward(h *headwise.Head, g *headwise.Grads) {
	pairs := visiblePairs(p.rule, h)
	defer pairs.Release()
	g.Clear()
	p.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
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

// globalWindow is the rule of Longformer: a query sees the tokens within radius and the
// global tokens; a global token sees all tokens.
type globalWindow struct {
	radius  int
	globals []int32 // in order
}

// countGlobalsBefore returns the number of global tokens before position at.
func (x *globalWindow) countGlobalsBefore(at int) int {
	n, _ := slices.BinarySearch(x.globals, int32(min(at, entry.MaxSettingTokens+1)))
	return n
}

func (x *globalWindow) addPairs(p *headwise.Pattern, s headGeometry) {
	g0, g1 := x.countGlobalsBefore(s.offset), x.countGlobalsBefore(s.offset+s.n) // global tokens among the queries
	after := func(at int) int {
		if s.causal {
			return at + 1
		}
		return s.m
	}
	lo, hi := p.AddPart(headwise.Range(0, s.n), headwise.Range(0, s.m))
	for i := range lo {
		at := s.offset + i
		lo[i], hi[i] = int32(max(at-x.radius, 0)), int32(min(at+x.radius+1, after(at), s.m))
	}
	for _, g := range x.globals[g0:g1] {
		lo[int(g)-s.offset], hi[int(g)-s.offset] = 0, 0
	}
	if asked := x.countGlobalsBefore(s.m); asked > 0 {
		// Global tokens before the window, and after it.
		keys := headwise.RowSet{N: asked, List: x.globals}
		left, end := p.AddPart(headwise.Range(0, s.n), keys)
		for i := range left {
			left[i], end[i] = 0, int32(x.countGlobalsBefore(s.offset+i-x.radius))
		}
		for _, g := range x.globals[g0:g1] {
			end[int(g)-s.offset] = 0
		}
		if !s.causal {
			left, end := p.AddPart(headwise.Range(0, s.n), keys)
			for i := range left {
				left[i], end[i] = int32(x.countGlobalsBefore(s.offset+i+x.radius+1)), int32(asked)
			}
			for _, g := range x.globals[g0:g1] {
				end[int(g)-s.offset] = 0
			}
		}
	}
	if g0 < g1 {
		lo, hi := p.AddPart(headwise.RowSet{First: -s.offset, N: g1 - g0, List: x.globals[g0:]}, headwise.Range(0, s.m))
		for i := range lo {
			lo[i], hi[i] = 0, int32(min(after(int(x.globals[g0+i])), s.m))
		}
	}
}

// dilations is the rule of several branches. LongNet weighs the output of a branch by
// the exponential of its log-sum-exp over the sum of these. That is one softmax over
// the pairs of all branches, in which a pair counts once for each branch that contains
// it.
type dilations []dilation

func (d dilations) addPairs(p *headwise.Pattern, s headGeometry) {
	for i := range d {
		d[i].addPairs(p, s)
	}
}

// dilation is the rule of one branch: every ratio-th token of a segment sees the
// others.
type dilation struct {
	segment, ratio int
	heads          int // number of heads with form=code; 0: form=paper
}

// firstToken returns the first token of a segment that a head keeps.
func (d *dilation) firstToken(head int) int {
	if d.heads > 0 {
		return head / ((d.heads + d.ratio - 1) / d.ratio) % d.ratio
	}
	return head % d.ratio
}

func (d *dilation) addPairs(p *headwise.Pattern, s headGeometry) {
	first := d.firstToken(s.head)
	for begin := s.offset / d.segment * d.segment; begin < min(s.offset+s.n, s.m); begin += d.segment {
		end := begin + d.segment
		keys := headwise.EveryNth(d.ratio, begin+first, min(end, s.m))
		// at is the first kept query at or after offset.
		at := begin + first
		if at < s.offset {
			at += (s.offset - at + d.ratio - 1) / d.ratio * d.ratio
		}
		queries := headwise.EveryNth(d.ratio, at-s.offset, min(end-s.offset, s.n))
		if queries.N == 0 || keys.N == 0 {
			continue
		}
		lo, hi := p.AddPart(queries, keys)
		for a := range lo {
			lo[a], hi[a] = 0, int32(keys.N)
			if s.causal {
				hi[a] = int32((at-begin-first)/d.ratio + a + 1)
			}
		}
	}
}

// stridedTokens is the rule of strides: a query sees tokens less than s away, and
// tokens at distances that are multiples of s.
type stridedTokens struct{ s int }

func (x *stridedTokens) addPairs(p *headwise.Pattern, s headGeometry) {
	near := slidingWindow{x.s - 1, x.s - 1}
	near.addPairs(p, s)
	// Queries meet keys at positions that are equal modulo s.
	for i := range min(x.s, s.n) {
		at := s.offset + i
		queries, keys := headwise.EveryNth(x.s, i, s.n), headwise.EveryNth(x.s, at%x.s, s.m)
		lo, hi := p.AddPart(queries, keys)
		for a := range lo {
			lo[a], hi[a] = 0, int32(min(at/x.s+a, keys.N))
		}
		if s.causal {
			continue
		}
		lo, hi = p.AddPart(queries, keys)
		for a := range lo {
			lo[a], hi[a] = int32(min(at/x.s+a+1, keys.N)), int32(keys.N)
		}
	}
}

// blockEnds is the rule of fixed blocks: a query sees its own block of s tokens, and
// the last c tokens of other blocks.
type blockEnds struct{ s, c int }

func (x *blockEnds) addPairs(p *headwise.Pattern, s headGeometry) {
	own := blockWindow{w: x.s}
	own.addPairs(p, s)
	keys := headwise.RowSet{First: x.s - x.c, Run: x.c, Step: x.s}
	keys.N = s.m/x.s*x.c + max(s.m%x.s-(x.s-x.c), 0)
	if keys.N == 0 {
		return
	}
	lo, hi := p.AddPart(headwise.Range(0, s.n), keys)
	for i := range lo {
		lo[i], hi[i] = 0, int32(min((s.offset+i)/x.s*x.c, keys.N))
	}
	if s.causal {
		return
	}
	lo, hi = p.AddPart(headwise.Range(0, s.n), keys)
	for i := range lo {
		lo[i], hi[i] = int32(min(((s.offset+i)/x.s+1)*x.c, keys.N)), int32(keys.N)
	}
}
