package mechanism

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

var longnet = Row{
	Name:   "longnet",
	Family: Sparse,
	Doc:    "softmax within segments of several lengths, of the longer ones every second token and fewer",
	Source: "Ding et al. 2023, LongNet, arXiv 2307.02486, section 3; form=code: torchscale's DilatedAttention",
	Traits: "positive weights; cost N·Σ w/r² for segments of w tokens, of which every r-th; the state is a cache that grows",
	Settings: []Setting{
		{"segments", "2048,4096,8192,16384,32768", "w: tokens of a segment, of each branch"},
		{"ratios", "1,2,4,6,12", "r: a head keeps every r-th token of a segment, of each branch"},
		{"form", "paper", "paper: head h begins with token h mod r, and gradients are exact; code: with token ⌊h/⌈H/r⌉⌋, and what mixes the branches is constant in gradients"},
		softmaxScaleSetting,
	},
	f32: headwiseBuilder(newLongNet[float32]),
	f64: headwiseBuilder(newLongNet[float64]),
}

func newLongNet[T tensor.Float](r *reader) (headwise.Function[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	segments, err := r.Integers("segments", 1, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	ratios, err := r.Integers("ratios", 1, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	if len(segments) != len(ratios) {
		return nil, fmt.Errorf("%s: setting ratios=%s: has %d numbers, segments has %d", r.row.Name, r.Text("ratios"), len(ratios), len(segments))
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return nil, err
	}
	heads := 0
	if form == "code" {
		heads = max(r.o.Heads, 1)
	}
	var all dilations
	for b := range segments {
		all = append(all, dilation{segments[b], ratios[b], heads})
	}
	p := sparseSoftmax[T]{
		name: r.row.Name, rule: all, softmax: &headwise.PatternSoftmax[T]{Scale: scale},
		setting: fmt.Sprintf("longnet segments=%d ratios=%d form=%s scale=%s", segments, ratios, form, formatScale(scale)),
	}
	if form == "code" {
		return &branchMixture[T]{p, all}, nil
	}
	return &p, nil
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

// branchMixture computes each branch separately and mixes the outputs with weights that
// are constant in gradients (form=code).
type branchMixture[T tensor.Float] struct {
	sparseSoftmax[T]
	branches dilations
}

// Forward saves the logarithms of the softmax sums and the outputs of each branch.
func (m *branchMixture[T]) Forward(h *headwise.Head[T]) {
	n, dv := h.Out.Rows, h.Out.Cols
	saved := h.SaveBuffer(len(m.branches) * n * (1 + dv))
	one := *h
	for b := range m.branches {
		lse, out := splitBranch(saved, b, n, dv)
		one.Out = out
		pairs := visiblePairs[T](&m.branches[b], h)
		m.softmax.Forward(&one, lse, pairs)
		pairs.Release()
	}
	weights := m.branchWeights(h, saved)
	h.UnseenQueries = 0
	for i := range n {
		row := h.Out.Row(i)
		clear(row)
		var sum T
		for b := range m.branches {
			_, out := splitBranch(saved, b, n, dv)
			h.Table.Axpy(row, weights.Row(b)[i], out.Row(i))
			sum += weights.Row(b)[i]
		}
		if sum == 0 {
			h.UnseenQueries++
		}
	}
}

// Backward passes each branch its share of the output gradient.
func (m *branchMixture[T]) Backward(h *headwise.Head[T], g *headwise.Grads[T]) {
	n, dv := h.Out.Rows, h.Out.Cols
	g.Clear()
	weights, dout := m.branchWeights(h, h.Saved), h.TakeScratch(n, dv)
	for b := range m.branches {
		lse, out := splitBranch(h.Saved, b, n, dv)
		h.Table.ScaleRows(dout.Data, dv, g.DOut.Data, g.DOut.Stride, dv, weights.Row(b))
		pairs := visiblePairs[T](&m.branches[b], h)
		m.softmax.Backward(h, g, out, dout, lse, pairs)
		pairs.Release()
	}
}

// branchWeights returns the weights of the branches [branches, queries]: the softmax of
// their log-sum-exps, or zeros for a query that sees no key.
func (m *branchMixture[T]) branchWeights(h *headwise.Head[T], saved []T) tensor.Mat[T] {
	n, dv := h.Out.Rows, h.Out.Cols
	w := h.TakeScratch(len(m.branches), n)
	for i := range n {
		top, sum := math.Inf(-1), 0.0
		for b := range m.branches {
			lse, _ := splitBranch(saved, b, n, dv)
			top = max(top, float64(lse[i]))
		}
		for b := range m.branches {
			lse, _ := splitBranch(saved, b, n, dv)
			x := 0.0
			if !math.IsInf(float64(lse[i]), -1) {
				x = math.Exp2(float64(lse[i]) - top)
			}
			w.Row(b)[i] = T(x)
			sum += x
		}
		for b := 0; b < len(m.branches) && sum > 0; b++ {
			w.Row(b)[i] = T(float64(w.Row(b)[i]) / sum)
		}
	}
	return w
}

// splitBranch returns the saved logarithms [n] and outputs [n, dv] of branch b.
func splitBranch[T tensor.Float](saved []T, b, n, dv int) (lse []T, out tensor.Mat[T]) {
	part := saved[b*n*(1+dv):][:n*(1+dv)]
	return part[:n], tensor.Mat[T]{Data: part[n:], Rows: n, Cols: dv, Stride: dv}
}
