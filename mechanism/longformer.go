package mechanism

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

var longformer = Row{
	Name:   "longformer",
	Family: Sparse,
	Doc:    "softmax over a window, and global tokens that see all and are seen by all",
	Source: "Beltagy et al. 2020, Longformer, arXiv 2004.05150, section 3.1",
	Traits: "positive weights; cost in proportion to the window and the global tokens; the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"window", "512", "w: a query sees keys |j-i| ≤ ⌊w/2⌋, of which a causal one has the left half"},
		{"global", "0", "places of the global tokens, with commas between them, or none"},
		softmaxScaleSetting,
	},
	f32: headwiseBuilder(newLongformer[float32]),
	f64: headwiseBuilder(newLongformer[float64]),
}

func newLongformer[T tensor.Float](r *reader) (headwise.Function[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	w, err := r.Integer("window", 1, maxSettingTokens)
	if err != nil {
		return nil, err
	}
	p := &sparseSoftmax[T]{name: r.row.Name, softmax: &headwise.PatternSoftmax[T]{Scale: scale}}
	sees := &globalWindow{radius: w / 2}
	if r.Text("global") != "none" {
		list, err := r.Integers("global", 0, maxSettingTokens)
		if err != nil {
			return nil, err
		}
		slices.Sort(list)
		for _, g := range slices.Compact(list) {
			sees.globals = append(sees.globals, int32(g))
		}
	}
	p.rule = sees
	p.setting = fmt.Sprintf("longformer window=%d global=%d scale=%s", w, sees.globals, formatScale(scale))
	return p, nil
}

// globalWindow is the rule of Longformer: a query sees the tokens within radius and the
// global tokens; a global token sees all tokens.
type globalWindow struct {
	radius  int
	globals []int32 // in order
}

// countGlobalsBefore returns the number of global tokens before position at.
func (x *globalWindow) countGlobalsBefore(at int) int {
	n, _ := slices.BinarySearch(x.globals, int32(min(at, maxSettingTokens+1)))
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
