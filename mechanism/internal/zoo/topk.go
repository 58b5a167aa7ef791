package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// topKRows is the number of queries whose scores are computed at once.
const topKRows = 32

// topKAttention is softmax over the largest scores of each query. The choice of keys
// has no gradient.
type topKAttention struct {
	k     int
	scale float64 // 0: 1/√D
}

func NewExactTopK(r *entry.Reader) (headwise.Function, error) {
	x := new(topKAttention)
	var err error
	if x.k, err = r.Integer("topk", 1, 1<<16); err != nil {
		return nil, err
	}
	x.scale, err = r.SoftmaxScale()
	return x, err
}

func (x *topKAttention) Traits() attention.Traits {
	return attention.Traits{Name: "exact-topk", Positive: true, Causal: true}
}

func (x *topKAttention) Setting() string {
	return fmt.Sprintf("exact-topk topk=%d scale=%s", x.k, entry.FormatScale(x.scale))
}

func (x *topKAttention) Params() *param.Set          { return nil }
func (x *topKAttention) Constants() *param.Set       { return nil }
func (x *topKAttention) Check(*attention.Call) error { return nil }

// forEachQuery calls f with each query, the indices of its keys, and their weights.
func (x *topKAttention) forEachQuery(h *headwise.Head, f func(i int, keys []int32, w []float)) {
	m := h.K.Rows
	scale := float(x.scale)
	if x.scale == 0 {
		scale = float(1 / math.Sqrt(float64(h.Q.Cols)))
	}
	scores, keys, w := h.TakeScratch(min(topKRows, h.Q.Rows), m), arena.Take[int32](h.Scratch, min(x.k, m)), arena.Take[float](h.Scratch, min(x.k, m))
	seen, exist := 0, 0 // of the query before
	for i0 := 0; i0 < h.Q.Rows; i0 += topKRows {
		i1 := min(i0+topKRows, h.Q.Rows)
		h.Multiply(scores.Slice(0, i1-i0), h.Q.Slice(i0, i1), h.K, false, true, false)
		for i := i0; i < i1; i++ {
			for ; seen < h.VisibleKeys(i); seen++ {
				if h.IsUnmasked(seen) {
					exist++
				}
			}
			row, mask := scores.Row(i - i0)[:seen], h.Mask
			if mask != nil {
				mask = mask[:seen]
			}
			own := keys[:min(x.k, exist)]
			Largest(own, row, mask)
			weights := w[:len(own)]
			for c, j := range own {
				weights[c] = scale * row[j]
			}
			sum := h.Table.Exp(weights, weights, h.Table.Max(weights))
			h.Table.Scale(weights, float(1/float64(sum)), weights)
			f(i, own, weights)
		}
	}
}

func (x *topKAttention) Forward(h *headwise.Head) {
	h.SaveBuffer(0)
	x.forEachQuery(h, func(i int, keys []int32, w []float) {
		out := h.Out.Row(i)
		clear(out)
		for c, j := range keys {
			h.Table.Axpy(out, w[c], h.V.Row(int(j)))
		}
	})
}

func (x *topKAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	g.Clear()
	scale := float(x.scale)
	if x.scale == 0 {
		scale = float(1 / math.Sqrt(float64(h.Q.Cols)))
	}
	x.forEachQuery(h, func(i int, keys []int32, w []float) {
		do := g.DOut.Row(i)
		along := h.Table.Dot(do, h.Out.Row(i))
		for c, j := range keys {
			ds := scale * w[c] * (h.Table.Dot(do, h.V.Row(int(j))) - along)
			h.Table.Axpy(g.DQ.Row(i), ds, h.K.Row(int(j)))
			h.Table.Axpy(g.DK.Row(int(j)), ds, h.Q.Row(i))
			h.Table.Axpy(g.DV.Row(int(j)), w[c], do)
		}
	})
}

func (x *topKAttention) Cost(s attention.Shape) headwise.Cost {
	n, m, k := float64(s.N), float64(s.M), math.Min(float64(x.k), float64(s.M))
	return headwise.Cost{
		FLOPs: 2*n*m*float64(s.D) + 2*n*k*float64(s.Dv),
		Bytes: entry.ElementBytes()*(topKRows*m+k) + 4*k,
	}
}
