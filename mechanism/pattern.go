package mechanism

import (
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// pattern is softmax over the keys that a query sees by its place.
type pattern[T tensor.Float] struct {
	name, setting string
	sees          sight
	softmax       *attention.PairSoftmax[T]
	// window is the number of keys up to its own that a causal query sees at
	// most, and period what places may be shifted by; 0: no bound.
	window, period int
}

// sight adds the pairs of a head that see each other.
type sight interface {
	pairs(p *attention.Pairs, s *span)
}

// span is n queries of a head, the first of which stands at the place of key
// off, and m keys.
type span struct {
	n, m, off, head int
	causal          bool
}

func (p *pattern[T]) Traits() attention.Traits {
	return attention.Traits{Name: p.name, Positive: true, Causal: true, Streaming: p.window > 0}
}

func (p *pattern[T]) Setting() string                       { return p.setting }
func (p *pattern[T]) Params() *param.Set[T]                 { return nil }
func (p *pattern[T]) Constants() *param.Set[T]              { return nil }
func (p *pattern[T]) Check(*attention.Call[T]) error        { return nil }
func (p *pattern[T]) Window() (keys, period int)            { return p.window, p.period }
func (p *pattern[T]) Cost(s attention.Shape) attention.Cost { return pairsCost[T](p.sees, s) }

// pairsCost is that of the pairs of one head.
func pairsCost[T tensor.Float](sees sight, s attention.Shape) attention.Cost {
	x := span{n: s.N, m: s.M, causal: s.Causal}
	if s.Causal {
		x.off = max(s.M-s.N, 0)
		x.n = min(s.N, s.M)
	}
	p := attention.NewPairs()
	defer p.Release()
	sees.pairs(p, &x)
	const tile = 64 * 128
	return attention.Cost{
		FLOPs: 2 * float64(p.Count()) * float64(s.D+s.Dv+3),
		Bytes: sizeOf[T]()*float64(3*s.N+tile+2*128*(s.D+s.Dv)) + 8*float64(p.Bounds()),
	}
}

func pairsOf[T tensor.Float](sees sight, h *attention.Head[T]) *attention.Pairs {
	p := attention.NewPairs()
	sees.pairs(p, &span{n: h.Q.Rows, m: h.K.Rows, off: h.Off, head: h.Head, causal: h.Causal})
	return p
}

func (p *pattern[T]) Forward(h *attention.Head[T]) {
	pairs := pairsOf(p.sees, h)
	defer pairs.Release()
	p.softmax.Forward(h, h.Save(h.Q.Rows), pairs)
}

func (p *pattern[T]) Backward(h *attention.Head[T], g *attention.HeadGrads[T]) {
	pairs := pairsOf(p.sees, h)
	defer pairs.Release()
	g.Clear()
	p.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
}

// numbers returns the whole numbers between lo and hi that a setting lists.
func (r *reader) numbers(name string, lo, hi int) ([]int, error) {
	var list []int
	for _, text := range strings.Split(r.value(name), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < lo || n > hi {
			return nil, r.refuse(name, "whole numbers from "+strconv.Itoa(lo)+" to "+strconv.Itoa(hi)+" with commas between them")
		}
		list = append(list, n)
	}
	return list, nil
}

// softmaxScale is the setting of rows that have the weights of softmax.
var softmaxScale = Setting{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"}

func (r *reader) softmaxScale() (float64, error) { return r.positive(softmaxScale.Name, "1/sqrt(D)") }

// largest is the largest number of tokens that settings may name.
const largest = 1 << 30
