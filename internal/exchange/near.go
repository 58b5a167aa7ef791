package exchange

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/param"
)

// field is the near field of multipole: all queries of a block see the block, window keys on its
// sides, the first and the last keys.
type field struct{ block, window, sinks, ends int }

// noNumbers is the part of a function of whole heads that has no learned or drawn numbers and takes
// every call.
type noNumbers struct{}

func (noNumbers) Params() *param.Set          { return nil }
func (noNumbers) Constants() *param.Set       { return nil }
func (noNumbers) Check(*attention.Call) error { return nil }

// observer is the part of a function of whole heads that only looks at calls: its gradients are 0.
type observer struct{ noNumbers }

func (observer) Backward(_ *headwise.Head, g *headwise.Grads) { g.Clear() }

// bounds returns the keys lo ≤ j < hi that are near to query position p by their place, among m keys.
func (f field) bounds(p, m int, causal bool) (lo, hi int) {
	b := p / f.block
	lo, hi = max(b*f.block-f.window, 0), min((b+1)*f.block+f.window, m)
	if causal {
		hi = min(hi, p+1)
	}
	return lo, hi
}

// isNear reports whether key j is near to a query at position p, among m keys.
func (f field) isNear(p, j, m int, causal bool) bool {
	lo, hi := f.bounds(p, m, causal)
	return j < f.sinks || j >= m-f.ends && !causal || j >= lo && j < hi
}

// keys returns the number of near keys of a query among m.
func (f field) keys(m int, causal bool) int {
	n := f.block + 2*f.window + f.sinks + f.ends
	if causal {
		n = f.block + f.window + f.sinks
	}
	return min(n, m)
}

// nearAlone is softmax over the near field of multipole, without its far field.
type nearAlone struct {
	field
	noNumbers
	scale   float64
	softmax *headwise.PatternSoftmax
}

// newNearAlone returns the mechanism of a near field. A scale of 0 is 1/√D.
func newNearAlone(f field, scale float64) attention.Mechanism {
	return headwise.New(&nearAlone{field: f, scale: scale, softmax: &headwise.PatternSoftmax{Scale: scale}})
}

func (x *nearAlone) Traits() attention.Traits {
	return attention.Traits{Name: "near field alone", Positive: true, Causal: true, PlacedQueries: true}
}

func (x *nearAlone) Setting() string {
	return fmt.Sprintf("near field alone block=%d window=%d sinks=%d ends=%d scale=%g", x.block, x.window, x.sinks, x.ends, x.scale)
}

func (x *nearAlone) Cost(s attention.Shape) headwise.Cost {
	pairs := float64(s.N) * float64(x.keys(s.M, s.Causal))
	return headwise.Cost{FLOPs: 2 * pairs * float64(s.D+s.Dv), Bytes: 4 * float64(3*s.N+64*128)}
}

func (x *nearAlone) Forward(h *headwise.Head) {
	p := x.pairs(h)
	defer p.Release()
	x.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), p)
}

func (x *nearAlone) Backward(h *headwise.Head, g *headwise.Grads) {
	p := x.pairs(h)
	defer p.Release()
	g.Clear()
	x.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, p)
}

// pairs returns the queries and keys of a head that see each other: each pair once.
func (x *nearAlone) pairs(h *headwise.Head) *headwise.Pattern {
	n, m := h.Q.Rows, h.K.Rows
	first, last := min(x.sinks, m), m
	if !h.Causal {
		last = max(m-x.ends, first)
	}
	p := headwise.NewPattern()
	lo, hi := p.AddPart(headwise.Range(0, n), headwise.Range(0, m))
	for i := range lo {
		a, b := x.bounds(max(i+h.Shift, 0), m, h.Causal)
		lo[i], hi[i] = int32(min(max(a, first), m)), int32(max(min(b, last), 0))
		hi[i] = max(hi[i], lo[i])
	}
	if first > 0 {
		lo, hi := p.AddPart(headwise.Range(0, n), headwise.Range(0, first))
		for i := range lo {
			lo[i], hi[i] = 0, int32(first)
			if h.Causal {
				hi[i] = int32(max(min(first, i+h.Shift+1), 0))
			}
		}
	}
	if last < m {
		lo, hi := p.AddPart(headwise.Range(0, n), headwise.Range(last, m-last))
		for i := range lo {
			lo[i], hi[i] = 0, int32(m-last)
		}
	}
	return p
}
