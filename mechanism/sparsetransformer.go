package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

var sparseStrided = Row{
	Name:   "sparse-strided",
	Family: Sparse,
	Doc:    "softmax over the last tokens, and every stride-th token before them",
	Source: "Child et al. 2019, Sparse Transformers, arXiv 1904.10509, section 4.2, both factors in one head",
	Traits: "positive weights; cost N·(stride + N/stride), of N^1.5 with stride √N; the state is a cache that grows",
	Settings: []Setting{
		{"stride", "128", "s: a query sees |i-j| < s, and i-j that are multiples of s"},
		softmaxScaleSetting,
	},
	f32: headwiseBuilder(newSparseStrided[float32]),
	f64: headwiseBuilder(newSparseStrided[float64]),
}

var sparseFixed = Row{
	Name:   "sparse-fixed",
	Family: Sparse,
	Doc:    "softmax over the query's block, and the last tokens of every block before",
	Source: "Child et al. 2019, Sparse Transformers, arXiv 1904.10509, section 4.2, both factors in one head",
	Traits: "positive weights; cost N·(stride + c·N/stride); the state is a cache that grows",
	Settings: []Setting{
		{"stride", "128", "s: tokens of a block"},
		{"c", "8", "tokens at the end of a block that queries of other blocks see"},
		softmaxScaleSetting,
	},
	f32: headwiseBuilder(newSparseFixed[float32]),
	f64: headwiseBuilder(newSparseFixed[float64]),
}

func newSparseStrided[T tensor.Float](r *reader) (headwise.Function[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	s, err := r.Integer("stride", 1, maxSettingTokens)
	return &sparseSoftmax[T]{
		name: r.row.Name, setting: fmt.Sprintf("sparse-strided stride=%d scale=%s", s, formatScale(scale)),
		softmax: &headwise.PatternSoftmax[T]{Scale: scale}, rule: &stridedTokens{s},
	}, err
}

func newSparseFixed[T tensor.Float](r *reader) (headwise.Function[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	s, err := r.Integer("stride", 1, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	c, err := r.Integer("c", 0, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	if c > s {
		return nil, r.Refuse("c", fmt.Sprintf("no more than stride=%d", s))
	}
	return &sparseSoftmax[T]{
		name: r.row.Name, setting: fmt.Sprintf("sparse-fixed stride=%d c=%d scale=%s", s, c, formatScale(scale)),
		softmax: &headwise.PatternSoftmax[T]{Scale: scale}, rule: &blockEnds{s, c},
	}, nil
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
