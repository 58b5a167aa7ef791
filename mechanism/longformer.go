package mechanism

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

var longformer = Row{
	Name:   "longformer",
	Doc:    "softmax over a window, and global tokens that see all and are seen by all",
	Source: "Beltagy et al. 2020, Longformer, arXiv 2004.05150, section 3.1",
	Traits: "positive weights; cost in proportion to the window and the global tokens; the state is a cache that grows",
	Linear: true,
	Settings: []Setting{
		{"window", "512", "w: a query sees keys |j-i| ≤ ⌊w/2⌋, of which a causal one has the left half"},
		{"global", "0", "places of the global tokens, with commas between them, or none"},
		softmaxScale,
	},
	f32: headwise(longformerPattern[float32]),
	f64: headwise(longformerPattern[float64]),
}

func longformerPattern[T tensor.Float](r *reader) (attention.Headwise[T], error) {
	scale, err := r.softmaxScale()
	if err != nil {
		return nil, err
	}
	w, err := r.whole("window", 1, largest)
	if err != nil {
		return nil, err
	}
	p := &pattern[T]{name: r.row.Name, softmax: &attention.PairSoftmax[T]{Scale: scale}}
	sees := &windowAndGlobals{reach: w / 2}
	if r.value("global") != "none" {
		list, err := r.numbers("global", 0, largest)
		if err != nil {
			return nil, err
		}
		slices.Sort(list)
		for _, g := range slices.Compact(list) {
			sees.globals = append(sees.globals, int32(g))
		}
	}
	p.sees = sees
	p.setting = fmt.Sprintf("longformer window=%d global=%d scale=%s", w, sees.globals, scaleText(scale))
	return p, nil
}

// windowAndGlobals is the sight of the tokens at most reach away, of the global
// tokens, and by these of all.
type windowAndGlobals struct {
	reach   int
	globals []int32 // in order
}

// before returns how many global tokens stand before place at.
func (x *windowAndGlobals) before(at int) int {
	n, _ := slices.BinarySearch(x.globals, int32(min(at, largest+1)))
	return n
}

func (x *windowAndGlobals) pairs(p *attention.Pairs, s *span) {
	g0, g1 := x.before(s.off), x.before(s.off+s.n) // global tokens that ask
	after := func(at int) int {
		if s.causal {
			return at + 1
		}
		return s.m
	}
	lo, hi := p.Add(attention.Stretch(0, s.n), attention.Stretch(0, s.m))
	for i := range lo {
		at := s.off + i
		lo[i], hi[i] = int32(max(at-x.reach, 0)), int32(min(at+x.reach+1, after(at), s.m))
	}
	for _, g := range x.globals[g0:g1] {
		lo[int(g)-s.off], hi[int(g)-s.off] = 0, 0
	}
	if asked := x.before(s.m); asked > 0 {
		// Those that are not in the window, before it and after.
		keys := attention.Places{N: asked, List: x.globals}
		left, end := p.Add(attention.Stretch(0, s.n), keys)
		for i := range left {
			left[i], end[i] = 0, int32(x.before(s.off+i-x.reach))
		}
		for _, g := range x.globals[g0:g1] {
			end[int(g)-s.off] = 0
		}
		if !s.causal {
			left, end := p.Add(attention.Stretch(0, s.n), keys)
			for i := range left {
				left[i], end[i] = int32(x.before(s.off+i+x.reach+1)), int32(asked)
			}
			for _, g := range x.globals[g0:g1] {
				end[int(g)-s.off] = 0
			}
		}
	}
	if g0 < g1 {
		lo, hi := p.Add(attention.Places{First: -s.off, N: g1 - g0, List: x.globals[g0:]}, attention.Stretch(0, s.m))
		for i := range lo {
			lo[i], hi[i] = 0, int32(min(after(int(x.globals[g0+i])), s.m))
		}
	}
}
