package zoo

import (
	"math"

	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// branchMixture computes each branch separately and mixes the outputs with weights that
// are constant in gradients (form=code).
type branchMixture struct {
	sparseSoftmax
	branches dilations
}

// Forward sets h.Out to the mean of the branches' outputs with the weights of branchWeights, and
// saves the logarithms of the softmax sums and the outputs of each branch.
func (m *branchMixture) Forward(h *headwise.Head) {
	n, dv := h.Out.Rows, h.Out.Cols
	saved := h.SaveBuffer(len(m.branches) * n * (1 + dv))
	one := *h
	for b := range m.branches {
		lse, out := splitBranch(saved, b, n, dv)
		one.Out = out
		pairs := visiblePairs(&m.branches[b], h)
		m.softmax.Forward(&one, lse, pairs)
		pairs.Release()
	}
	weights := m.branchWeights(h, saved)
	h.UnseenQueries = 0
	for i := range n {
		row := h.Out.Row(i)
		clear(row)
		var sum float
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
func (m *branchMixture) Backward(h *headwise.Head, g *headwise.Grads) {
	n, dv := h.Out.Rows, h.Out.Cols
	g.Clear()
	weights, dout := m.branchWeights(h, h.Saved), h.TakeScratch(n, dv)
	for b := range m.branches {
		lse, out := splitBranch(h.Saved, b, n, dv)
		h.Table.ScaleRows(dout.Data, dv, g.DOut.Data, g.DOut.Stride, dv, weights.Row(b))
		pairs := visiblePairs(&m.branches[b], h)
		m.softmax.Backward(h, g, out, dout, lse, pairs)
		pairs.Release()
	}
}

// branchWeights returns the weights of the branches [branches, queries]: the softmax of
// their log-sum-exps, or zeros for a query that sees no key.
func (m *branchMixture) branchWeights(h *headwise.Head, saved []float) tensor.Mat {
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
			w.Row(b)[i] = float(x)
			sum += x
		}
		for b := 0; b < len(m.branches) && sum > 0; b++ {
			w.Row(b)[i] = float(float64(w.Row(b)[i]) / sum)
		}
	}
	return w
}

// splitBranch returns the saved logarithms [n] and outputs [n, dv] of branch b.
func splitBranch(saved []float, b, n, dv int) (lse []float, out tensor.Mat) {
	part := saved[b*n*(1+dv):][:n*(1+dv)]
	return part[:n], tensor.Mat{Data: part[n:], Rows: n, Cols: dv, Stride: dv}
}
